"""What a profile holds: recorded as training runs, by the thread that it runs in, and read as numbers."""
