"""The contents of a profile, which are recorded in the training thread and read as numbers."""
