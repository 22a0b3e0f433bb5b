"""Replay debugging: what a conversation was at any event, and why; pure but for what reads the log."""
