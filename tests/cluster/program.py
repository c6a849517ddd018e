"""What the programs next to it share, each of which is one task of a small cluster: a model, its input, slow steps."""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import time
from typing import Any

import numpy as np
import tensorflow as tf

from fastsup import estimator as est

v1 = tf.compat.v1
PARAMS = {"learning_rate": 0.1}


class SlowDown(v1.train.SessionRunHook):
    """Makes steps last, so that training doesn't end before the test has said so: by a file alongside the model."""

    def __init__(self, model_dir: str) -> None:
        self._file = os.path.join(os.path.dirname(model_dir), "hurry")

    def after_run(self, run_context: Any, run_values: Any) -> None:
        time.sleep(0.001 if os.path.exists(self._file) else 0.2)


def input_fn() -> Any:
    x = np.linspace(0, 1, 64, dtype=np.float32).reshape(32, 2)
    return tf.data.Dataset.from_tensor_slices((x, x @ np.array([[1.0], [2.0]], np.float32))).repeat().batch(8)


def model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
    weights = v1.get_variable("w", [2, 1], initializer=v1.zeros_initializer())
    error = tf.matmul(features, weights) - labels
    loss = tf.reduce_mean(tf.square(error))
    optimizer = v1.train.GradientDescentOptimizer(params["learning_rate"])
    hooks = []
    if params.get("sync_replicas"):
        optimizer = v1.train.SyncReplicasOptimizer(optimizer, params["sync_replicas"], params["sync_replicas"])
        hooks.append(optimizer.make_session_run_hook(params["is_chief"]))
    return est.EstimatorSpec(
        mode,
        loss=loss,
        train_op=optimizer.minimize(loss, v1.train.get_global_step()),
        eval_metric_ops={"mae": v1.metrics.mean(tf.abs(error))},
        training_hooks=hooks,
    )


def set_up_process(alarm_secs: int = 170) -> None:
    """Whatever becomes of the test that has started it: it doesn't outlive it for long. It tells where it stands.

    Args:
      alarm_secs: seconds after which the process ends.
    """
    signal.alarm(alarm_secs)
    faulthandler.register(signal.SIGUSR1)
    logging.getLogger("tensorflow").setLevel(logging.INFO)
