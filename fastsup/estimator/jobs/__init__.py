"""train_and_evaluate: its specs, and the part that each task of a cluster runs."""
