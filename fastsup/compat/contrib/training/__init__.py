"""`tf.contrib.training`: hyperparameters, training and evaluation loops, the placement of variables."""
