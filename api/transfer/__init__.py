"""Logs on their way from one store to another, as files."""
