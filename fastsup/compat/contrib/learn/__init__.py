"""`tf.contrib.learn`: RunConfig, Estimator, export strategies, and what programs used with an Experiment."""
