"""Checkpoints: their directory, the restore (whole or partial), and the writer (synchronous or in the background)."""
