"""smdebug's SessionHook: the tensors that it has saved are those of the training."""

import os
import sys

os.environ.setdefault("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python")

from a_model import data, estimator
from smdebug.tensorflow import SaveConfig, SessionHook
from smdebug.trials import create_trial

folder = sys.argv[1]
hook = SessionHook(os.path.join(folder, "debug"), save_config=SaveConfig(save_interval=10), include_regex=["slope"])
hook.set_mode("TRAIN")
estimator(os.path.join(folder, "model")).train(data, hooks=[hook], steps=31)

trial = create_trial(os.path.join(folder, "debug"))
assert trial.steps() == [0, 10, 20, 30], trial.steps()
names = [name for name in trial.tensor_names() if "slope" in name]
assert names, trial.tensor_names()
