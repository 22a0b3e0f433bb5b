"""The command line: one module per command; what is slow to import is imported when a command runs."""
