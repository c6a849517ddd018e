"""Training on two devices, in their own processes: how many there are is settled when TensorFlow starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from processes import Processes

PROGRAM = """
import sys
import numpy as np, tensorflow as tf
from fastsup import estimator as est, train
v1 = tf.compat.v1
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
X = np.arange(40, dtype=np.float32).reshape(20, 2) / 40
Y = X @ np.array([[1.0], [2.0]], np.float32) + 0.1
def input_fn(input_context=None):
    return tf.data.Dataset.from_tensor_slices(({"x": X}, Y)).batch(2)
def model_fn(features, labels, mode):
    w = v1.get_variable("w", [2, 1], initializer=v1.constant_initializer(0.2))
    p = tf.matmul(features["x"], w)
    loss = tf.reduce_mean(tf.square(p - labels))
    op = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, v1.train.get_global_step())
    return est.EstimatorSpec(mode, loss=loss, train_op=op,
                             eval_metric_ops={"mae": v1.metrics.mean_absolute_error(labels, p)})
strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
assert strategy.num_replicas_in_sync == 2
config = est.RunConfig(sys.argv[1], 1, train_distribute=strategy, eval_distribute=strategy)
model = est.Estimator(model_fn, config=config)
"""

# Losses, variable and metrics are the reference's, of the same program.
TRAIN = """
losses = []
class Losses(train.SessionRunHook):
    def begin(self):
        self.loss = v1.get_collection(v1.GraphKeys.LOSSES)[-1]
    def before_run(self, run_context):
        return train.SessionRunArgs(self.loss)
    def after_run(self, run_context, run_values):
        losses.append(float(run_values.results))
model.train(lambda: input_fn().repeat(), steps=12, hooks=[Losses()])
np.testing.assert_allclose(losses[:4], [0.136725, 0.752970, 1.751784, 2.448048], rtol=1e-5)
np.testing.assert_allclose(losses[-1], 0.0941955, rtol=1e-5)
np.testing.assert_allclose(model.get_variable_value("w").ravel(), [1.886848, 1.982378], rtol=1e-5)
result = model.evaluate(input_fn)
np.testing.assert_allclose([result["loss"], result["mae"]], [0.16042504, 0.3295353], rtol=1e-4)
assert model.get_variable_names() == ["global_step", "w", "w/Momentum"]
"""

# Asked after the steps 1, 4, 7: the answer is yes at the third time. Then a metric stops it, after an evaluation.
STOP_EARLY = """
asked = []
def should_stop():
    asked.append(1)
    return len(asked) == 3
hook = est.make_early_stopping_hook(model, should_stop, run_every_secs=None, run_every_steps=3)
model.train(lambda: input_fn().repeat(), max_steps=50, hooks=[hook])
assert model.get_variable_value("global_step") == 7, model.get_variable_value("global_step")
assert model.get_variable_value("signal_early_stopping/STOP")
assert len(asked) == 3
found = model.evaluate(input_fn)["mae"]
for threshold, step in ((found * 0.9, 17), (found * 1.1, 18)):
    hook = est.stop_if_lower_hook(model, "mae", threshold, run_every_secs=None, run_every_steps=1)
    model.train(lambda: input_fn().repeat(), steps=10, hooks=[hook])
    assert model.get_variable_value("global_step") == step, (threshold, model.get_variable_value("global_step"))
"""


# What would wait for ever. A single replica goes to the CPU, as in TensorFlow.
WRONG = """
for devices, counted in ((["/cpu:0", "/cpu:1"], "CPU:0, CPU:1. "), (["/gpu:0", "/gpu:1"], "GPU:0, GPU:1. "),
                         (["/cpu:0", "/gpu:3"], "CPU:0, GPU:3. ")):
    one_cpu = v1.ConfigProto(allow_soft_placement=True, device_count={"CPU": 1, "GPU": 0})
    wrong = tf.distribute.MirroredStrategy(devices)
    for name in ("train_distribute", "eval_distribute"):
        config = est.RunConfig(sys.argv[1], 1, session_config=one_cpu, **{name: wrong})
        model = est.Estimator(model_fn, config=config)
        try:
            model.train(lambda: input_fn().repeat(), steps=1)
            model.evaluate(input_fn)
        except ValueError as error:
            for text in (name, "2 replicas, on the devices " + counted, "have CPU:0. Create the strategy for existing"):
                assert text in str(error), (text, str(error))
        else:
            raise AssertionError(name)
for one in (tf.distribute.OneDeviceStrategy("/gpu:0"), tf.distribute.MirroredStrategy(["/cpu:0"])):
    config = est.RunConfig(sys.argv[1], 1, train_distribute=one)
    est.Estimator(model_fn, config=config).train(lambda: input_fn().repeat(), steps=2)
"""


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("program", [TRAIN, STOP_EARLY, WRONG], ids=["train", "stop early", "wrong devices"])
def test_two_devices(tmp_path: Path, program: str, processes: Processes) -> None:
    done = processes.python("-c", PROGRAM + program, tmp_path / "model", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
