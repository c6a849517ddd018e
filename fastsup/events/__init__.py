"""Event files: the summaries and graphs that a training session writes for TensorBoard."""
