"""Trains a classifier on handwritten digits: 8x8 images, which come with scikit-learn.

It trains under a MonitoredTrainingSession, with checkpoints, summaries and a log line now and then. Run it again and
it goes on from its last checkpoint, however the run before ended.

    python examples/digits.py              # train, then measure the accuracy on images it hasn't seen
    python examples/digits.py --compare    # the same training with TensorFlow's session and with fastsup's
"""

from __future__ import annotations

import argparse
import logging
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

# Before TensorFlow is imported: no notices about the processor, and sums in the same order everywhere.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from rich.table import Column, Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import fastsup.train

tf1 = tf.compat.v1
console = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)


class Digits(NamedTuple):
    """Images and the digits they show."""

    images: np.ndarray  # of 64 numbers between 0 and 1 each
    labels: np.ndarray


def load_data() -> tuple[Digits, Digits]:
    """The images to train on and those to test with: always the same, so that no test image is ever trained on."""
    data = load_digits()
    images, labels = (data.data / 16).astype(np.float32), data.target.astype(np.int32)
    train_x, test_x, train_y, test_y = train_test_split(images, labels, test_size=0.25, random_state=0, stratify=labels)
    return Digits(train_x, train_y), Digits(test_x, test_y)


def build_model(images: tf.Tensor, labels: tf.Tensor) -> dict[str, tf.Tensor]:
    """A network with one hidden layer: its loss and its accuracy."""
    hidden = tf.nn.relu(dense(images, 64, "hidden"))
    logits = dense(hidden, 10, "logits")
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    correct = tf.equal(tf.argmax(logits, axis=1, output_type=tf.int32), labels)
    return {"loss": tf.reduce_mean(losses), "accuracy": tf.reduce_mean(tf.cast(correct, tf.float32))}


def dense(inputs: tf.Tensor, units: int, name: str) -> tf.Tensor:
    """A fully connected layer."""
    with tf1.variable_scope(name):
        weights = tf1.get_variable("weights", [inputs.shape[1], units], initializer=tf1.glorot_uniform_initializer())
        biases = tf1.get_variable("biases", [units], initializer=tf1.zeros_initializer())
    return inputs @ weights + biases


def build_training(digits: Digits, options: argparse.Namespace) -> tuple[tf.Operation, dict[str, tf.Tensor]]:
    """Input, model and summaries. Returns the operation that does one step, and values to log."""
    tf1.set_random_seed(options.seed)
    dataset = tf.data.Dataset.from_tensor_slices(tuple(digits)).shuffle(len(digits.labels), seed=options.seed)
    # With a batch size that the graph knows, fastsup can tell how heavy a step is, and choose the executor by that.
    batches = dataset.repeat().batch(options.batch_size, drop_remainder=True)
    model = build_model(*tf1.data.make_one_shot_iterator(batches).get_next())
    for name, value in model.items():
        tf1.summary.scalar(name, value)
    global_step = tf1.train.get_or_create_global_step()
    optimizer = tf1.train.MomentumOptimizer(options.learning_rate, momentum=0.9)
    return optimizer.minimize(model["loss"], global_step), {"step": global_step, **model}


class ProgressHook(fastsup.train.SessionRunHook):
    """Says where training starts, and moves a progress bar."""

    def __init__(self, progress: Progress, last_step: int) -> None:
        self._progress, self._last_step = progress, last_step

    def after_create_session(self, session: Any, coord: Any) -> None:
        self.first_step = self._step = int(session.run(tf1.train.get_global_step()))
        console.print(f"{'Resuming from' if self._step else 'Starting at'} step {self._step:,}")
        self._task = self._progress.add_task("training", total=self._last_step, completed=self._step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._step += 1
        if self._step % 100 == 0:  # Drawing takes longer than a step.
            self._progress.update(self._task, completed=self._step)


def train(
    digits: Digits, options: argparse.Namespace, logdir: Path, hooks: Sequence[Any] = (),
    library: Any = fastsup.train, compiled_loop: bool = True,
) -> float:  # fmt: skip
    """Trains up to step `options.steps`, from the last checkpoint in `logdir` on.

    `library` is fastsup.train or tf.compat.v1.train: they have the same names. Returns the seconds that the loop took.
    """
    with tf.Graph().as_default():
        train_op, values = build_training(digits, options)
        stop = library.StopAtStepHook(last_step=options.steps)
        log = library.LoggingTensorHook(values, every_n_iter=500, formatter=log_line)
        with library.MonitoredTrainingSession(
            checkpoint_dir=str(logdir), hooks=[stop, log, *hooks],
            save_checkpoint_steps=options.save_steps, save_summaries_steps=100,
        ) as session:  # fmt: skip
            started = time.perf_counter()
            if compiled_loop:
                session.run_loop(train_op)  # fastsup's own; the other runs under any MonitoredSession.
            else:
                while not session.should_stop():
                    session.run(train_op)
            seconds = time.perf_counter() - started
    return seconds


def log_line(values: dict[str, Any]) -> str:
    """What LoggingTensorHook logs."""
    return f"step {values['step']:>7,}   loss {values['loss']:.4f}   accuracy {values['accuracy']:6.1%}"


def evaluate(digits: Digits, logdir: Path) -> float:
    """The share of digits that the model in the last checkpoint recognizes."""
    with tf.Graph().as_default():
        model = build_model(tf.constant(digits.images), tf.constant(digits.labels))
        creator = fastsup.train.ChiefSessionCreator(checkpoint_dir=str(logdir))
        with fastsup.train.MonitoredSession(creator) as session:
            accuracy = session.run(model["accuracy"])
    return float(accuracy)


def step_reached(logdir: Path) -> int:
    """The step of the last checkpoint in `logdir`, 0 if there is none."""
    checkpoint = tf.train.latest_checkpoint(str(logdir))
    return int(checkpoint.rpartition("-")[2]) if checkpoint else 0


def train_and_report(options: argparse.Namespace) -> None:
    """Trains, tests, and says where everything is."""
    train_digits, test_digits = load_data()
    rate = ""
    if step_reached(options.logdir) >= options.steps:
        console.print(f"{options.logdir} has reached step {options.steps:,} already. To go on, give a larger --steps.")
    else:
        columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            hook = ProgressHook(progress, options.steps)
            seconds = train(train_digits, options, options.logdir, [hook])
        rate = f", trained at {(options.steps - hook.first_step) / seconds:,.0f} steps/s"
    accuracy = evaluate(test_digits, options.logdir)
    command = shlex.join([sys.executable, "-m", "tensorboard.main", "--logdir", str(options.logdir)])
    console.print(f"Test accuracy {accuracy:.2%} on {len(test_digits.labels)} images{rate}", style="bold")
    console.print(f"Checkpoints and logs are in {options.logdir}; see them with: {command}")


def compare(options: argparse.Namespace, turns: int = 3) -> None:
    """Trains with TensorFlow's session and with fastsup's in turn, each time from the beginning."""
    train_digits, test_digits = load_data()
    contenders = {
        "tf.compat.v1.train, session.run": (tf1.train, False),
        "fastsup.train, session.run": (fastsup.train, False),
        "fastsup.train, session.run_loop": (fastsup.train, True),
    }
    seconds, accuracy = dict.fromkeys(contenders, float("inf")), dict.fromkeys(contenders, 0.0)
    with tempfile.TemporaryDirectory() as folder, console.status("Training with each in turn"):
        for turn in range(turns):
            for number, (name, (library, compiled)) in enumerate(contenders.items()):
                logdir = Path(folder, f"{number}-{turn}")
                seconds[name] = min(seconds[name], train(train_digits, options, logdir, (), library, compiled))
                accuracy[name] = evaluate(test_digits, logdir)
    columns = (Column(heading, justify="right") for heading in ("steps/s", "µs/step", "ratio", "test accuracy"))
    table = Table("session", *columns, title=f"{options.steps:,} steps, best of {turns} turns")
    base = next(iter(seconds.values()))
    for name, value in seconds.items():
        rate, time_per_step = f"{options.steps / value:,.0f}", f"{value / options.steps * 1e6:,.1f}"
        table.add_row(name, rate, time_per_step, f"{base / value:.2f} x", f"{accuracy[name]:.2%}")
    console.print(table)


def above_zero(number: type[int | float]) -> Callable[[str], float]:
    """An argparse type for such numbers."""

    def parse(text: str) -> float:
        value = number(text)
        if 0 < value < float("inf"):
            return value
        raise argparse.ArgumentTypeError(f"must be above 0, got {text}")

    parse.__name__ = number.__name__  # argparse says: invalid int value
    return parse


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--logdir", type=Path, default="digits-logdir", help="folder for checkpoints and logs (./%(default)s)")
    add("--steps", type=above_zero(int), default=5000, help="train up to this step (%(default)s)")
    add("--batch-size", type=above_zero(int), default=32, help="images in one step (%(default)s)")
    add("--learning-rate", type=above_zero(float), default=0.1, help="of the optimizer (%(default)s)")
    add("--save-steps", type=above_zero(int), default=1000, help="steps between two checkpoints (%(default)s)")
    add("--seed", type=int, default=0, help="of the initial weights and the order of the images (%(default)s)")
    add("--compare", action="store_true", help="compare with TensorFlow's session, in temporary folders")
    options = parser.parse_args(arguments)
    options.logdir = options.logdir.resolve()
    try:
        if not options.compare:
            options.logdir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"argument --logdir: {error}")
    return options


class ConsoleHandler(logging.Handler):
    """Shows what LoggingTensorHook logs, and warnings, above the progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text.startswith("step ") or (record.levelno > logging.INFO and "is deprecated" not in text):
            console.print(text)


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code: 0, or 130 when interrupted. A wrong command line exits with 2."""
    options = parse_options(arguments)
    tf.get_logger().handlers = [ConsoleHandler()]
    tf.get_logger().setLevel(logging.ERROR if options.compare else logging.INFO)
    try:
        (compare if options.compare else train_and_report)(options)
    except KeyboardInterrupt:
        console.print("Interrupted. Run again, training goes on from its last checkpoint.")
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
