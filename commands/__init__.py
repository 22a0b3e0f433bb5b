"""The write side: load a conversation, decide, append."""
