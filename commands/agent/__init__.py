"""The runner: what makes a conversation's log owe nothing."""
