"""The contents of a profile: recorded during training, in the training thread, and read as numbers."""
