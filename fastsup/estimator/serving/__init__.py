"""Repeated predictions with an Estimator's model, which is built once."""
