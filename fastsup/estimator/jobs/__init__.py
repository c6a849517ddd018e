"""train_and_evaluate: its specs, and what each task of a cluster does."""
