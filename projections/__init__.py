"""The read side: fold the log into tables, and query them."""
