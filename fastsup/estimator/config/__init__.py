"""RunConfig, the checks of its values, and its distribution strategies."""
