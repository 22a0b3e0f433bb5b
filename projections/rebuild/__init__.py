"""Read models made anew from the whole log, beside those that serve, and the check that both agree."""
