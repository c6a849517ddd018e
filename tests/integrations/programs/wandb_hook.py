"""wandb's WandbHook, offline: what it has logged is in its file."""

import glob
import os
import sys

from a_model import data, estimator

os.environ["WANDB_MODE"] = "offline"

import wandb
from wandb.integration.tensorflow import WandbHook
from wandb.proto import wandb_internal_pb2
from wandb.sdk.internal import datastore

folder = sys.argv[1]
wandb.init(project="test", dir=folder)
estimator(os.path.join(folder, "model")).train(data, hooks=[WandbHook(steps_per_log=10)], steps=50)
wandb.finish()

(file,) = glob.glob(os.path.join(folder, "wandb", "offline-run-*", "*.wandb"))
store = datastore.DataStore()
store.open_for_scan(file)
steps, names = [], set()
while (raw := store.scan_data()) is not None:
    record = wandb_internal_pb2.Record.FromString(raw)
    if record.WhichOneof("record_type") == "history":
        keys = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
        names |= keys.keys()
        steps.append(int(keys.get("global_step", keys.get("_step", "-1"))))
assert steps == [0, 10, 20, 30, 40], steps
assert any(name.endswith("squared_error") for name in names), names
