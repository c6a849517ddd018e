"""Estimator: what model_fn returns, and how a model is trained, evaluated, asked and exported."""
