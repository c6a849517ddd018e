"""Trains the digits classifier on a cluster: a chief, two workers, a parameter server and an evaluator.

Each is its own process, here all on this machine. What it is, it learns from the environment variable TF_CONFIG,
which a cluster manager would set; the program is the same for all. When training has ended they all end.

    python examples/cluster.py
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

# Before TensorFlow is imported: no notices about the processor.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf
from digits import Digits, above_zero, build_model, load_data

import fastsup.estimator as estimator

tf1 = tf.compat.v1
TASKS = [("ps", 0), ("chief", 0), ("worker", 0), ("worker", 1), ("evaluator", 0)]


def model_fn(features: tf.Tensor, labels: tf.Tensor, mode: str, params: dict[str, Any]) -> estimator.EstimatorSpec:
    """The classifier, for training and for evaluation."""
    model = build_model(features, labels)
    metrics = {"accuracy": tf1.metrics.mean(model["accuracy"])}
    step = tf1.train.get_or_create_global_step()
    train_op = tf1.train.GradientDescentOptimizer(params["learning_rate"]).minimize(model["loss"], step)
    return estimator.EstimatorSpec(mode, loss=model["loss"], train_op=train_op, eval_metric_ops=metrics)


def input_fn(digits: Digits, batch_size: int, endless: bool) -> tf.data.Dataset:
    """Batches of images and the digits that they show."""
    dataset = tf.data.Dataset.from_tensor_slices(tuple(digits))
    if endless:
        dataset = dataset.shuffle(len(digits.labels)).repeat()
    return dataset.batch(batch_size, drop_remainder=endless)


def run_task(options: argparse.Namespace) -> None:
    """What each of the processes does, whatever its role."""
    logging.getLogger("tensorflow").setLevel(logging.INFO)
    train_digits, test_digits = load_data()
    config = estimator.RunConfig(
        model_dir=str(options.logdir),
        save_checkpoints_steps=options.save_steps,
        log_step_count_steps=options.save_steps,
        experimental_max_worker_delay_secs=options.worker_delay_secs,
    )
    classifier = estimator.Estimator(model_fn, config=config, params={"learning_rate": options.learning_rate})
    train_spec = estimator.TrainSpec(lambda: input_fn(train_digits, 32, endless=True), max_steps=options.steps)
    eval_spec = estimator.EvalSpec(
        lambda: input_fn(test_digits, len(test_digits.labels), endless=False),
        steps=None,
        start_delay_secs=1,
        throttle_secs=1,
    )
    estimator.train_and_evaluate(classifier, train_spec, eval_spec)


def free_addresses(number: int) -> list[str]:
    """Free addresses on this machine."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("localhost", 0))
        return [f"localhost:{each.getsockname()[1]}" for each in sockets]


def tf_configs() -> dict[str, str]:
    """TF_CONFIG for each of the tasks. The evaluator isn't part of the cluster, but knows it."""
    members = [task for task in TASKS if task[0] != "evaluator"]
    cluster: dict[str, list[str]] = {}
    for (role, _), address in zip(members, free_addresses(len(members)), strict=True):
        cluster.setdefault(role, []).append(address)
    return {
        f"{role}-{index}": json.dumps({"cluster": cluster, "task": {"type": role, "index": index}})
        for role, index in TASKS
    }


def run_cluster(options: argparse.Namespace) -> int:
    """Starts the processes and waits for them. Returns 0 if each has ended well. None outlives this one."""
    # Raising an exception in a signal's handler could interrupt the start of a process, which would stay alive.
    signals: list[int] = []
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda number, frame: signals.append(number))
    logs = options.logdir / "logs"
    logs.mkdir(exist_ok=True)
    started = time.monotonic()
    with ExitStack() as stack:
        processes: dict[str, subprocess.Popen[bytes]] = {}
        for name, tf_config in tf_configs().items():
            log = stack.enter_context(open(logs / f"{name}.log", "wb"))
            environment = {**os.environ, "TF_CONFIG": tf_config}
            command = [sys.executable, *sys.argv, "--logdir", str(options.logdir)]
            processes[name] = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            stack.callback(processes[name].wait)
            stack.callback(processes[name].kill)
        running = dict(processes)
        while running and time.monotonic() - started < options.timeout_secs:
            time.sleep(0.1)
            if signals:
                return 128 + signals[0]
            for name, process in list(running.items()):
                if process.poll() is not None:
                    del running[name]
                    print(f"{time.monotonic() - started:5.1f} s  {name} ended with exit code {process.returncode}")
                    if process.returncode:
                        print((logs / f"{name}.log").read_text()[-3000:], file=sys.stderr)
                        return 1
    if running:
        print(f"Still running after {options.timeout_secs} s: {', '.join(running)}. See {logs}", file=sys.stderr)
        return 1
    result = (logs / "evaluator-0.log").read_text().rpartition("Saving dict for ")[2].partition("\n")[0]
    print(f"Last evaluation, {result}")
    print(f"Checkpoints and logs are in {options.logdir}")
    return 0


def parse_arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--logdir", type=Path, help="directory for checkpoints and logs (a new one)")
    add("--steps", type=above_zero(int), default=5000, help="global step to train up to (%(default)s)")
    add("--save-steps", type=above_zero(int), default=1000, help="steps between two checkpoints (%(default)s)")
    add("--learning-rate", type=above_zero(float), default=0.1, help="of the optimizer (%(default)s)")
    add("--worker-delay-secs", type=int, default=1, help="seconds that a worker waits, at most (%(default)s)")
    add("--timeout-secs", type=above_zero(float), default=300, help="after which everything is ended (%(default)s)")
    options = parser.parse_args()
    if options.worker_delay_secs < 0:
        parser.error(f"argument --worker-delay-secs: must be 0 or more, got {options.worker_delay_secs}")
    if options.logdir is None and os.environ.get("TF_CONFIG"):
        parser.error("argument --logdir: needed with TF_CONFIG, the same for all tasks")
    options.logdir = options.logdir or Path(tempfile.mkdtemp(prefix="digits-cluster-"))
    try:
        options.logdir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"argument --logdir: {error}")
    return options


if __name__ == "__main__":
    arguments = parse_arguments()
    if os.environ.get("TF_CONFIG"):
        run_task(arguments)
    else:
        sys.exit(run_cluster(arguments))
