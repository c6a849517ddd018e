"""What programs look for where older releases of TensorFlow, NumPy and Python had it."""
