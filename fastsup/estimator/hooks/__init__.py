"""Session-run hooks for Estimators: early stopping, a stop at a step, evaluation in memory, input checkpoints."""
