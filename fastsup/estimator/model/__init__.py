"""Estimator: the model_fn and its EstimatorSpec; training, evaluation, prediction and export of a model."""
