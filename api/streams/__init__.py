"""Server-Sent Events: a conversation, or all of a caller's, from any event on and then live."""
