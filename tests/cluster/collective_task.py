"""One task of a small job of collectives: what it is, TF_CONFIG says. Without TF_CONFIG, the same training on its own.

python collective_task.py MODEL_DIR SETTINGS
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import numpy as np
import tensorflow as tf
from program import set_up_process

from fastsup import estimator as est
from fastsup.cluster.collective import watch

v1 = tf.compat.v1
DEFAULTS: dict[str, Any] = {
    "max_steps": 12, "save_steps": 5, "save_secs": None, "wait_secs": 60, "eager": True, "rows": 8, "batches": None,
    "slow": 0.0, "executor": "auto", "stop_early_at": None, "fails_at": None, "batch_norm": False, "trainings": 1,
    "silent_secs": 60.0, "alarm_secs": 170,
}  # fmt: skip


class Losses(v1.train.SessionRunHook):
    """Prints the loss of each step, and what it has trained; makes steps last; fails when told."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._hurry = os.path.join(os.path.dirname(sys.argv[1]), "hurry")

    def begin(self) -> None:
        self._fetches = v1.get_collection(v1.GraphKeys.LOSSES)[-1], v1.train.get_global_step()

    def before_run(self, run_context: Any) -> Any:
        return v1.train.SessionRunArgs(self._fetches[0])

    def after_run(self, run_context: Any, run_values: Any) -> None:
        step = int(run_context.session.run(self._fetches[1]))
        print(f"loss of step {step}: {float(run_values.results)!r}", flush=True)
        if [task(), step] == self._settings["fails_at"]:
            raise ValueError("the worker's own mistake")
        if self._settings["slow"] and not os.path.exists(self._hurry):
            time.sleep(self._settings["slow"])


def task() -> str:
    found = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {})
    return f"{found.get('type')}-{found.get('index')}"


def rows(batch: int, number: int) -> tuple[Any, Any]:
    """The rows of a batch of all workers."""
    x = np.random.default_rng(batch).normal(size=(number, 3)).astype(np.float32)
    return x, x @ np.array([[1.0], [2.0], [-1.0]], np.float32) + 0.5


def main(model_dir: str, settings: dict[str, Any]) -> None:
    set_up_process(settings["alarm_secs"])
    watch.SILENT_SECS = settings["silent_secs"]
    if not settings["eager"]:
        v1.disable_eager_execution()
    alone = "TF_CONFIG" not in os.environ

    def input_fn(input_context: Any = None) -> Any:
        x, y = zip(*(rows(batch, settings["rows"]) for batch in range(20)), strict=True)
        data = tf.data.Dataset.from_tensor_slices((np.stack(x), np.stack(y)))
        if input_context is not None and not alone:
            number, count = input_context.input_pipeline_id, input_context.num_input_pipelines
            data = data.map(lambda x, y: (x[number::count], y[number::count]))
        if settings["batches"] is None:
            return data.repeat()
        return data.take(settings["batches"][task()])

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        hidden = v1.get_variable("hidden", [3, 4], initializer=v1.random_normal_initializer(seed=3))
        weights = v1.get_variable("w", [4, 1], initializer=v1.constant_initializer(0.3))
        predicted = tf.matmul(tf.tanh(tf.matmul(features, hidden)), weights)
        if settings["batch_norm"]:
            average = v1.get_variable(
                "average", [], initializer=v1.zeros_initializer(), trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.MEAN,
            )  # fmt: skip
            update = average.assign(0.9 * average + 0.1 * tf.reduce_mean(features))
        loss = tf.reduce_mean(tf.square(predicted - labels))
        optimizer = v1.train.MomentumOptimizer(0.1, 0.9)
        train_op = optimizer.minimize(loss, v1.train.get_global_step())
        if settings["batch_norm"]:
            train_op = tf.group(train_op, update)
        return est.EstimatorSpec(
            mode, loss=loss, train_op=train_op, eval_metric_ops={"mae": v1.metrics.mean(tf.abs(predicted - labels))}
        )

    config = est.RunConfig(
        model_dir=model_dir,
        tf_random_seed=1,
        save_checkpoints_steps=settings["save_steps"],
        save_checkpoints_secs=settings["save_secs"],
        save_summary_steps=4,
        log_step_count_steps=5,
        session_creation_timeout_secs=settings["wait_secs"],
        executor=settings["executor"],
        train_distribute=None if alone or task() == "evaluator-0" else tf.distribute.MultiWorkerMirroredStrategy(),
    )
    estimator = est.Estimator(model_fn, config=config)
    hooks: list[Any] = [Losses(settings)]
    if settings["stop_early_at"] is not None:
        hooks.append(
            est.experimental.make_early_stopping_hook(
                estimator, lambda: True, run_every_secs=None, run_every_steps=settings["stop_early_at"]
            )
        )
    if settings["trainings"] > 1:
        for _ in range(settings["trainings"]):
            estimator.train(input_fn, hooks, steps=settings["max_steps"])
    elif alone:
        estimator.train(input_fn, hooks, max_steps=settings["max_steps"])
    else:
        train_spec = est.TrainSpec(input_fn, settings["max_steps"], hooks=hooks)
        est.train_and_evaluate(
            estimator, train_spec, est.EvalSpec(input_fn, steps=4, start_delay_secs=0, throttle_secs=0.5)
        )
    print("the end of the program", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], {**DEFAULTS, **json.loads(sys.argv[2])})
