"""TensorFlow functions run in a session that shares the eager context's devices: `fastsup.function`."""
