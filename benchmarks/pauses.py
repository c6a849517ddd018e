"""What a save costs training: the longest pause for a checkpoint, between the ends of two steps.

    python -m benchmarks.pauses                      # kinds of training, in Supervisor and MonitoredTrainingSession
    python -m benchmarks.pauses --megabytes 400 --rounds 5
    python -m benchmarks.pauses --snapshots          # the snapshot of async_save alone: what nothing else disturbs

Each run takes about ten seconds. Contenders take turns.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter
from typing import Any, NamedTuple

import tensorflow as tf
from rich.console import Console
from rich.table import Table

import fastsup.train
from fastsup.checkpoint.writer import saved_tensors
from fastsup.runtime.graph.variable_sharing import add_reads_without_copy, snapshot_of

v1 = tf.compat.v1

MEGABYTES, VARIABLES = 200, 20
SAVE_SECS = 3.0
SAVES = 2
COMMAND_MEGABYTES, COMMAND_ROUNDS = 100, 3
# The rows of the embedding table that a step changes, and the width of the table.
ROWS, WIDTH = 256, 64

TENSORFLOW = "tf MonitoredTrainingSession"
WAITING = "fastsup MonitoredTrainingSession"
BACKGROUND = "fastsup MonitoredTrainingSession, async_save"
ARGUMENTS: Mapping[str, tuple[Any, dict[str, Any]]] = {
    TENSORFLOW: (v1.train, {}),
    WAITING: (fastsup.train, {}),
    BACKGROUND: (fastsup.train, {"async_save": True}),
}
SUPERVISORS: Mapping[str, tuple[Any, dict[str, Any]]] = {
    "tf Supervisor (torn checkpoints)": (v1.train, {}),
    "fastsup Supervisor": (fastsup.train, {}),
    "fastsup Supervisor, async_save": (fastsup.train, {"async_save": True}),
}

# Kinds of training: each makes variables of so many floats in all, and returns the operation that changes them.


def untouched(floats: int) -> Any:
    """A small step alongside variables that no step changes."""
    for number in range(VARIABLES):
        v1.get_variable(
            f"v{number}", [floats // VARIABLES], initializer=v1.random_uniform_initializer(), use_resource=True
        )
    weights = v1.get_variable("weights", [200, 200], initializer=v1.ones_initializer(), use_resource=True)
    return weights.assign(tf.matmul(weights, weights) / 200.0)


def _descent(floats: int, use_resource: bool) -> Any:
    variables = [
        v1.get_variable(
            f"v{number}",
            [floats // VARIABLES],
            initializer=v1.random_uniform_initializer(),
            use_resource=use_resource,
        )
        for number in range(VARIABLES)
    ]
    loss = tf.add_n([tf.reduce_sum(tf.square(variable)) for variable in variables])
    return v1.train.GradientDescentOptimizer(1e-6).minimize(loss)


def dense(floats: int) -> Any:
    """Gradient descent on all variables, in place."""
    return _descent(floats, True)


def references(floats: int) -> Any:
    """The same on reference variables."""
    return _descent(floats, False)


def sparse(floats: int) -> Any:
    """Gradient descent on some rows of an embedding table."""
    length = floats // WIDTH
    table = v1.get_variable("table", [length, WIDTH], initializer=v1.random_uniform_initializer(), use_resource=True)
    rows = tf.random.uniform([ROWS], maxval=length, dtype=tf.int32)
    loss = tf.reduce_sum(tf.square(tf.nn.embedding_lookup(table, rows)))
    return v1.train.GradientDescentOptimizer(1e-6).minimize(loss)


PROGRAMS: Mapping[str, Callable[[int], Any]] = {
    "untouched": untouched,
    "dense": dense,
    "references": references,
    "sparse": sparse,
}


class Pause(NamedTuple):
    """What a run has measured.

    Args:
      longest: the longest time from the end of a step to the end of the next one, in seconds.
      step: the median of these times.
    """

    longest: float
    step: float


@contextlib.contextmanager
def _monitored(train: Any, folder: str, arguments: dict[str, Any]) -> Iterator[Any]:
    with train.MonitoredTrainingSession(
        checkpoint_dir=folder, save_checkpoint_secs=SAVE_SECS, save_checkpoint_steps=None, **arguments
    ) as session:
        yield session


@contextlib.contextmanager
def _supervised(train: Any, folder: str, arguments: dict[str, Any]) -> Iterator[Any]:
    config = arguments.pop("config", None)
    supervisor = train.Supervisor(logdir=folder, save_model_secs=SAVE_SECS, save_summaries_secs=0, **arguments)
    with supervisor.managed_session(config=config) as session:
        yield session


def measure(
    train: Any,
    arguments: dict[str, Any],
    megabytes: int = MEGABYTES,
    device: str = "",
    program: Callable[[int], Any] = untouched,
    supervised: bool = False,
) -> Pause:
    """Trains with some saves, and measures the pauses.

    Args:
      train: module with `MonitoredTrainingSession` and `Supervisor`.
      arguments: more arguments for it.
      megabytes: size of all variables, in 10^6 bytes.
      device: the device for the variables; empty for TensorFlow's choice.
      program: one of the kinds of training.
      supervised: whether a Supervisor saves, in a thread; else a hook, in the loop.

    Returns:
      A `Pause`.
    """
    with tf.Graph().as_default(), tempfile.TemporaryDirectory() as folder:
        with tf.device(device or None):
            change = program(megabytes * 1_000_000 // 4)
        with tf.control_dependencies([change]):
            train_op = v1.assign_add(v1.train.get_or_create_global_step(), tf.constant(1, tf.int64)).op
        opened = (_supervised if supervised else _monitored)(train, folder, dict(arguments))
        with opened as session:
            times = []
            before = perf_counter()
            end = before + SAVE_SECS * (SAVES + 0.5)
            while before < end:
                session.run(train_op)
                now = perf_counter()
                times.append(now - before)
                before = now
        return Pause(max(times), statistics.median(times))


def longest_pause(train: Any, arguments: dict[str, Any], megabytes: int = MEGABYTES, device: str = "") -> float:
    """The longest pause of `measure`, in seconds, of the first kind of training."""
    return measure(train, arguments, megabytes, device).longest


def alternate_pauses(rounds: int) -> dict[str, list[float]]:
    """Measures all contenders in turns. A run takes about ten seconds.

    Args:
      rounds: 7 for each run of each contender.

    Returns:
      The longest pause of each run in seconds, by contender.
    """
    samples: dict[str, list[float]] = {name: [] for name in ARGUMENTS}
    for _ in range(max(1, rounds // 7)):
        for name, (train, arguments) in ARGUMENTS.items():
            samples[name].append(longest_pause(train, arguments))
    return samples


def snapshots(kind: str, megabytes: int, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Measures how long steps wait for a snapshot, and how long the next step takes, without a write alongside them.

    Args:
      kind: the kind of training.
      megabytes: size of the variables.
      rounds: snapshots of each contender, which take turns.

    Returns:
      (seconds of the snapshot, seconds of the next step) of each snapshot: of `async_save`, and of a copy of everything
      that a read gives.
    """
    samples: dict[str, list[tuple[float, float]]] = {"async_save": [], "copies": []}
    with tf.Graph().as_default() as graph:
        step = PROGRAMS[kind](megabytes * 1_000_000 // 4)
        add_reads_without_copy(graph)
        tensors = saved_tensors(v1.train.Saver(), graph)
        kept = snapshot_of(graph, tensors)
        initialize = v1.global_variables_initializer()
        with fastsup.Session() as session:
            session.run(initialize)
            how = {"async_save": (kept.shared, kept.before), "copies": ([False] * len(tensors), [])}
            buffers: dict[str, list[Any]] = {name: [None] * len(tensors) for name in how}
            for number in range(rounds + 1):
                for name, arguments in how.items():
                    for _ in range(10):
                        session.run(step)
                    started = perf_counter()
                    values = session._copy_values(tensors, buffers[name], *arguments)
                    taken = perf_counter()
                    session.run(step)
                    if number > 0:  # The first ones have new buffers.
                        samples[name].append((taken - started, perf_counter() - taken))
                    buffers[name] = [None if s else value for value, s in zip(values, arguments[0], strict=True)]
                    del values
    return samples


def print_snapshots(megabytes: int, rounds: int) -> None:
    """Measures and prints the snapshots of all kinds of training."""
    table = Table(title=f"snapshot of {megabytes} MB, then the next step, ms: best, median")
    for heading in ("training", "copies of what is read", "next step", "async_save", "next step"):
        table.add_column(heading, justify="left" if heading == "training" else "right")
    for kind in PROGRAMS:
        samples = snapshots(kind, megabytes, rounds)
        cells = [
            f"{1e3 * min(part):.1f}, {1e3 * statistics.median(part):.1f}"
            for name in ("copies", "async_save")
            for part in zip(*samples[name], strict=True)
        ]
        table.add_row(kind, *cells)
    Console(width=None if sys.stdout.isatty() else 130).print(table)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command, and prints a table: the median of the longest pauses, and of the steps, in milliseconds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pauses", description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=COMMAND_MEGABYTES, help="size of the variables")
    parser.add_argument("--rounds", type=int, default=COMMAND_ROUNDS, help="runs of each contender")
    parser.add_argument("--program", action="append", choices=list(PROGRAMS), help="only this kind of training")
    parser.add_argument("--ours", action="store_true", help="only async_save")
    parser.add_argument("--snapshots", action="store_true", help="measure the snapshots alone")
    options = parser.parse_args(arguments)
    # TensorFlow's Supervisor saves in a thread, which reads the global step as if it were an eager variable otherwise.
    v1.disable_eager_execution()
    if options.snapshots:
        print_snapshots(options.megabytes, 5 * options.rounds)
        return 0
    programs = {name: PROGRAMS[name] for name in options.program or PROGRAMS}
    contenders = [
        (name, train, more, supervised)
        for supervised, group in ((True, SUPERVISORS), (False, ARGUMENTS))
        for name, (train, more) in group.items()
        if more or not options.ours
    ]
    pauses: dict[tuple[str, str], list[Pause]] = {}
    for _ in range(options.rounds):
        for kind, program in programs.items():
            for name, train, more, supervised in contenders:
                pause = measure(train, more, options.megabytes, program=program, supervised=supervised)
                pauses.setdefault((name, kind), []).append(pause)
    table = Table(title=f"{options.megabytes} MB: longest pause for a save (a step), ms")
    table.add_column("contender")
    for kind in programs:
        table.add_column(kind, justify="right")
    for name, *_ in contenders:
        runs = [pauses[name, kind] for kind in programs]
        cells = [
            f"{1e3 * statistics.median(pause.longest for pause in run):.1f} "
            f"({1e3 * statistics.median(pause.step for pause in run):.2f})"
            for run in runs
        ]
        table.add_row(name, *cells)
    Console(width=None if sys.stdout.isatty() else 130).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
