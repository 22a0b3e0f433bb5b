"""What a conversation is: its events, the aggregate that decides, and what the log owes. Pure: no I/O."""
