"""Session-run hooks for Estimators: early stopping, evaluation in memory, the stop at a checkpoint's step."""
