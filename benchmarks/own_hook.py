"""Measures what a program's hook that reads the loss every 100 steps costs a step.

    python -m benchmarks.own_hook     # a minute

The hook is written as a SessionRunHook, which is called in each run, and as a fastsup.core.Hook, which says when it is
due. Measured in turns, in MonitoredTrainingSession with its default hooks, with 0, 1 and 5 such hooks.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import tensorflow as tf

from benchmarks import programs
from benchmarks.contenders import FastsupMonitored, FastsupRunLoop, Program, TensorFlowMonitored, leave_out_stale_steps
from benchmarks.measure import alternate
from fastsup.core import Hook

EVERY = 100
COUNTS = (0, 1, 5)


class InEachRun(tf.compat.v1.train.SessionRunHook):
    """Is called in each run, and fetches the loss in every hundredth."""

    def __init__(self, loss: Any) -> None:
        self._loss = loss
        self._runs = 0
        self.last: Any = None

    def before_run(self, run_context: Any) -> Any:
        self._runs += 1
        return None if self._runs % EVERY else tf.compat.v1.train.SessionRunArgs(self._loss)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if run_values.results is not None:
            self.last = run_values.results


class WhenDue(Hook):
    """Is called in every hundredth step."""

    def __init__(self, loss: Any) -> None:
        self.fetches = loss
        self.last: Any = None

    def begin(self, loop: Any) -> None:
        self.due_at_step(loop.global_step + EVERY)

    def after_step(self, loop: Any, value: Any) -> None:
        self.last = value
        self.due_at_step(loop.global_step + EVERY)


def build(kind: Any, count: int) -> programs.Step:
    """The step of ten weights, with hooks that read its loss."""
    loss = programs.distance()
    return programs.Step(programs.descend(loss), hooks=lambda train: [kind(loss) for _ in range(count)])


WAYS = {
    "SessionRunHook, TensorFlow's session": (TensorFlowMonitored, InEachRun),
    "SessionRunHook, fastsup's session": (FastsupMonitored, InEachRun),
    "fastsup.core.Hook": (FastsupMonitored, WhenDue),
    "SessionRunHook, run_loop": (FastsupRunLoop, InEachRun),
    "fastsup.core.Hook, run_loop": (FastsupRunLoop, WhenDue),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.own_hook", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=30, help="slices for each (%(default)s)")
    options = parser.parse_args()
    makers = {
        f"{name}|{count}": partial(make, Program(partial(build, kind, count)))
        for name, (make, kind) in WAYS.items()
        for count in COUNTS
    }
    samples = {name: 1e6 * min(seconds) for name, seconds in alternate(makers, options.rounds).items()}
    print(f"us per step{'':29}" + "".join(f"{count:>8} hooks" for count in COUNTS))
    for name in WAYS:
        print(f"{name:40}" + "".join(f"{samples[f'{name}|{count}']:14.2f}" for count in COUNTS))


if __name__ == "__main__":
    leave_out_stale_steps()
    main()
