"""The runtime layer: run plans over a TensorFlow session, the choice of executor, and the counted global step."""
