"""The standard session-run hooks, one file each."""
