"""One task of the small clusters of test_cluster_recovery.py: what it is, TF_CONFIG says.

python cluster_task.py MODEL_DIR SETTINGS
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import signal
import sys
import time
from typing import Any

import numpy as np
import tensorflow as tf

from fastsup import estimator as est
from fastsup.estimator import job_end

v1 = tf.compat.v1
DEFAULTS: dict[str, Any] = {"max_steps": 1000, "save_steps": 10, "wait_secs": 60, "workers_secs": 600}


class SlowDown(v1.train.SessionRunHook):
    """Makes steps last, so that training doesn't end before the test has said so: by a file beside the model."""

    def __init__(self, model_dir: str) -> None:
        self._file = os.path.join(os.path.dirname(model_dir), "hurry")

    def after_run(self, run_context: Any, run_values: Any) -> None:
        time.sleep(0.001 if os.path.exists(self._file) else 0.2)


def input_fn() -> Any:
    x = np.linspace(0, 1, 64, dtype=np.float32).reshape(32, 2)
    return tf.data.Dataset.from_tensor_slices((x, x @ np.array([[1.0], [2.0]], np.float32))).repeat().batch(8)


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    weights = v1.get_variable("w", [2, 1], initializer=v1.zeros_initializer())
    error = tf.matmul(features, weights) - labels
    loss = tf.reduce_mean(tf.square(error))
    train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, v1.train.get_global_step())
    return est.EstimatorSpec(
        mode, loss=loss, train_op=train_op, eval_metric_ops={"mae": v1.metrics.mean(tf.abs(error))}
    )


def main(model_dir: str, settings: dict[str, Any]) -> None:
    # Whatever becomes of the test that has started it: it doesn't outlive it for long.
    signal.alarm(170)
    faulthandler.register(signal.SIGUSR1)
    logging.getLogger("tensorflow").setLevel(logging.INFO)
    job_end.WORKERS_SECS = settings["workers_secs"]
    config = est.RunConfig(
        model_dir=model_dir,
        save_checkpoints_steps=settings["save_steps"],
        log_step_count_steps=settings["save_steps"],
        experimental_max_worker_delay_secs=0,
        session_creation_timeout_secs=settings["wait_secs"],
        recovery_wait_secs=0.5,
    )
    est.train_and_evaluate(
        est.Estimator(model_fn, config=config),
        est.TrainSpec(input_fn, settings["max_steps"], hooks=[SlowDown(model_dir)]),
        est.EvalSpec(input_fn, steps=4, start_delay_secs=0, throttle_secs=0.5),
    )


if __name__ == "__main__":
    main(sys.argv[1], {**DEFAULTS, **json.loads(sys.argv[2])})
