"""Predictions of an Estimator that is asked again and again: the model is built once."""
