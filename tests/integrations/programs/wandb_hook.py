"""wandb's WandbHook, offline: what it logs, and when."""

import glob
import os
import sys

from a_model import data, estimator

os.environ["WANDB_MODE"] = "offline"

import wandb
from wandb.integration.tensorflow import WandbHook


class History:
    """What a hook is given to log to, in place of the run's own history."""

    def __init__(self):
        self.rows = []

    def add(self, row):
        """Ends a row."""

    def _row_update(self, row):
        self.rows.append(row)


folder, history = sys.argv[1], History()
os.makedirs(folder, exist_ok=True)
wandb.init(project="test", dir=folder)
estimator(os.path.join(folder, "model")).train(data, hooks=[WandbHook(steps_per_log=10, history=history)], steps=50)
# And once into the run itself.
estimator(os.path.join(folder, "model")).train(data, hooks=[WandbHook(steps_per_log=10)], steps=20)
wandb.finish()

assert len(history.rows) == 5, history.rows
losses = [value for row in history.rows for name, value in row.items() if name.endswith("squared_error")]
assert len(losses) == 5, history.rows
assert losses == sorted(losses, reverse=True), losses
assert glob.glob(os.path.join(folder, "wandb", "offline-run-*", "*.wandb"))
