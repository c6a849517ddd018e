"""Programs that were written for TensorFlow's own session layer and for `tf.estimator` run unmodified."""
