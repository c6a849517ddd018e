"""One task of the job of chaos.py: what it is, TF_CONFIG says.

python chaos_task.py MODEL_DIR SETTINGS
"""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import Any

import tensorflow as tf
from noting_hooks import Journal, Progress
from program import PARAMS, input_fn, set_up_process

from fastsup import estimator as est
from fastsup.runtime import session as sessions

v1 = tf.compat.v1


def model_fn(features: Any, labels: Any, mode: str, params: dict[str, float]) -> Any:
    """A linear model, with variables next to it that say by how many steps each parameter server's part was changed."""
    weights = v1.get_variable("w", [2, 1], initializer=v1.zeros_initializer())
    counts = [
        v1.get_variable(f"count_{number}", [], tf.int64, initializer=v1.zeros_initializer()) for number in range(4)
    ]
    error = tf.matmul(features, weights) - labels
    loss = tf.reduce_mean(tf.square(error))
    optimizer = v1.train.GradientDescentOptimizer(params["learning_rate"])
    counted = [v1.assign_add(count, 1, use_locking=True) for count in counts]
    with tf.control_dependencies(counted):
        train_op = optimizer.minimize(loss, v1.train.get_global_step())
    return est.EstimatorSpec(
        mode, loss=loss, train_op=train_op, eval_metric_ops={"mae": v1.metrics.mean(tf.abs(error))}
    )


def untuned_input_fn() -> Any:
    """The input without the thread of tf.data that tunes it."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return input_fn().with_options(options)


DEFAULTS: dict[str, Any] = {
    "tuned": True, "wait_secs": 300, "close_secs": 10, "save_secs": None, "throttle_secs": 1, "alarm_secs": 170,
    "recovery_wait_secs": 30,
}  # fmt: skip


def main(model_dir: str, settings: dict[str, Any]) -> None:
    set_up_process(settings["alarm_secs"])
    for handler in logging.getLogger("tensorflow").handlers:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    folder = os.path.dirname(model_dir)
    sessions.CLOSE_SECS = settings["close_secs"]
    config = est.RunConfig(
        model_dir=model_dir,
        save_checkpoints_steps=settings["save_steps"] if settings["save_secs"] is None else None,
        save_checkpoints_secs=settings["save_secs"],
        log_step_count_steps=settings["save_steps"],
        experimental_max_worker_delay_secs=0,
        session_creation_timeout_secs=settings["wait_secs"],
        recovery_wait_secs=settings["recovery_wait_secs"],
        keep_checkpoint_max=10,
    )
    task = f"{config.task_type}-{config.task_id}"
    est.train_and_evaluate(
        est.Estimator(model_fn, config=config, params=PARAMS),
        est.TrainSpec(
            input_fn if settings["tuned"] else untuned_input_fn,
            settings["max_steps"],
            hooks=[Progress(folder, task, settings["step_secs"])],
            saving_listeners=[Journal(folder)],
        ),
        est.EvalSpec(input_fn, steps=2, start_delay_secs=0, throttle_secs=settings["throttle_secs"]),
    )


if __name__ == "__main__":
    main(sys.argv[1], {**DEFAULTS, **json.loads(sys.argv[2])})
