"""What the ways to save of several libraries leave behind when the power is lost or a file operation fails."""
