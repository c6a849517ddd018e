"""Canned models, from the archived package tensorflow-estimator 2.15, on fastsup's Estimator."""
