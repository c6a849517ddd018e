"""The hooks that know an Estimator."""
