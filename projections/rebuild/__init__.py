"""Read models made anew from the whole log, beside those that serve."""
