"""A job of eight real processes that counts what its tasks ask the file system and each other."""

from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from rich.table import Table

from benchmarks.cluster_step import free_addresses
from benchmarks.scale_counts import Counter, counted_calls
from fastsup import estimator

tf1 = tf.compat.v1

ROLES = {"chief": 1, "worker": 4, "ps": 2}
STEP_SECS = 0.05
# Seconds within which a job of two cores has come to its end after its training.
_END_SECS = 240.0


class _Slow(tf1.train.SessionRunHook):  # type: ignore[misc]
    """Makes steps last, and has the phase of the count be that of training."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._counter.phase = "training"
        time.sleep(STEP_SECS)

    def end(self, session: Any) -> None:
        self._counter.phase = "end"


def _input() -> Any:
    values = np.ones([8, 4], np.float32)
    return tf.data.Dataset.from_tensors((values, values[:, :1])).repeat()


def _model(features: Any, labels: Any, mode: str) -> Any:
    weights = tf1.get_variable("weights", [4, 1], initializer=tf1.zeros_initializer())
    loss = tf.reduce_mean(tf.square(features @ weights - labels))
    optimizer = tf1.train.GradientDescentOptimizer(0.01)
    return estimator.EstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss, tf1.train.get_global_step()))


def run_task(model_dir: str, max_steps: int) -> None:
    """Is the task that TF_CONFIG says. Writes its counts, and its CPU seconds, into a file alongside the model."""
    counter = Counter()
    config = estimator.RunConfig(model_dir=model_dir, save_checkpoints_steps=200, experimental_max_worker_delay_secs=0)
    with counted_calls(counter):
        estimator.train_and_evaluate(
            estimator.Estimator(_model, config=config),
            estimator.TrainSpec(_input, max_steps, hooks=[_Slow(counter)]),
            estimator.EvalSpec(_input, steps=1, start_delay_secs=0, throttle_secs=2),
        )
    found = {"role": config.task_type, "calls": [[*key, count] for key, count in counter.calls.items()]}
    found["cpu"] = time.process_time()
    with open(f"{model_dir}-{config.task_type}-{config.task_id}.json", "w", encoding="utf-8") as file:
        json.dump(found, file)


def run_job(train_secs: float) -> dict[str, Any]:
    """Runs the job.

    Args:
      train_secs: about how long it trains.

    Returns:
      The counts by role, phase and kind; the seconds of CPU by role; and the seconds that the job took.
    """
    addresses = iter(free_addresses(sum(ROLES.values())))
    cluster = {role: [next(addresses) for _ in range(count)] for role, count in ROLES.items()}
    tasks = [(role, index) for role, count in {**ROLES, "evaluator": 1}.items() for index in range(count)]
    max_steps = int(train_secs / STEP_SECS * (1 + ROLES["worker"]))
    with tempfile.TemporaryDirectory() as folder:
        model_dir = os.path.join(folder, "model")
        started = time.monotonic()
        processes = []
        for role, index in tasks:
            tf_config = json.dumps({"cluster": cluster, "task": {"type": role, "index": index}})
            environment = {**os.environ, "TF_CONFIG": tf_config, "CUDA_VISIBLE_DEVICES": "-1"}
            command = [sys.executable, "-m", "benchmarks.scale_job", model_dir, str(max_steps)]
            processes.append(subprocess.Popen(command, env=environment))
        try:
            until = time.monotonic() + train_secs + _END_SECS
            codes = [process.wait(max(1.0, until - time.monotonic())) for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
        if any(codes):
            raise RuntimeError(f"A task of the job has failed: {dict(zip(tasks, codes, strict=True))}.")
        secs = time.monotonic() - started
        calls: collections.Counter[tuple[str, str, str]] = collections.Counter()
        cpu: collections.Counter[str] = collections.Counter()
        for role, index in tasks:
            with open(f"{model_dir}-{role}-{index}.json", encoding="utf-8") as file:
                found = json.load(file)
            cpu[role] += found["cpu"]
            for phase, kind, count in found["calls"]:
                # What only waits has no phases.
                calls[role, phase if role in ("chief", "worker") else "all", kind] += count
    return {"calls": calls, "cpu": cpu, "secs": secs}


def calls_table(found: dict[str, Any]) -> Table:
    """The counts of all tasks of a role."""
    title = f"{', '.join(f'{count} {role}' for role, count in ROLES.items())}, 1 evaluator: {found['secs']:.0f} s"
    table = Table("tasks", "phase", "what", "times", title=title, title_justify="left")
    for (role, phase, kind), count in sorted(found["calls"].items()):
        table.add_row(role, phase, kind, f"{count:,}")
    for role, seconds in found["cpu"].items():
        table.add_row(role, "all", "CPU, s", f"{seconds:.1f}")
    return table


if __name__ == "__main__":
    run_task(sys.argv[1], int(sys.argv[2]))
