"""RunConfig, and the rules for its values."""
