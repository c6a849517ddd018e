"""Sessions over the devices of the eager context, and where on them TensorFlow runs a function."""
