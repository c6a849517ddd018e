"""Session-run hooks for Estimators: early stopping, stopping at a step, in-memory evaluation, input checkpoints."""
