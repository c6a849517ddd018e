"""Repeated predictions of an Estimator, with a model that is built once."""
