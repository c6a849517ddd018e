"""Measures what a step costs against the number of hooks, under TensorFlow's session and under fastsup's, in turns.

    python -m benchmarks.hook_counts --json benchmarks/results/hook_counts.json    # two minutes
    python -m website.measured                                                     # draws it

The hooks are alongside the default ones of a MonitoredTrainingSession: StopAtStepHooks that never stop, and hooks in
Python that ask for the global step in each run, as people write them.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import tensorflow as tf

from benchmarks import programs, report
from benchmarks.contenders import FastsupMonitored, Program, TensorFlowMonitored, leave_out_stale_steps
from benchmarks.measure import NEVER, QUICK_SLICE_SECS, alternate

COUNTS = (0, 1, 2, 4, 8, 16, 32)
CONTENDERS = {"TensorFlow": TensorFlowMonitored, "fastsup": FastsupMonitored}


class PythonHook(tf.compat.v1.train.SessionRunHook):
    """Asks for the global step in each run."""

    def begin(self) -> None:
        self._step = tf.compat.v1.train.get_global_step()

    def before_run(self, run_context: Any) -> Any:
        return tf.compat.v1.train.SessionRunArgs(self._step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.step = run_values.results


def standard_hooks(count: int, train: Any) -> list[Any]:
    """Hooks of the library that is measured."""
    return [train.StopAtStepHook(last_step=NEVER) for _ in range(count)]


def python_hooks(count: int, train: Any) -> list[Any]:
    """Hooks in Python."""
    return [PythonHook() for _ in range(count)]


KINDS = {"StopAtStepHook": standard_hooks, "a hook in Python": python_hooks}


def build(hooks: Any, count: int) -> programs.Step:
    """The step of ten weights, with hooks."""
    return programs.Step(programs.sgd().fetches, hooks=partial(hooks, count))


def measure(rounds: int) -> list[dict[str, Any]]:
    """Measures all of them in turns.

    Args:
      rounds: number of slices for each.

    Returns:
      For each library and kind of hook, the microseconds per step by the number of hooks: those of the best slice.
    """
    makers = {
        f"{library}|{kind}|{count}": partial(make, Program(partial(build, hooks, count)))
        for library, make in CONTENDERS.items()
        for kind, hooks in KINDS.items()
        for count in COUNTS
    }
    samples = alternate(makers, rounds, slice_secs=QUICK_SLICE_SECS)
    lines: dict[tuple[str, str], dict[str, float]] = {}
    for name, seconds in samples.items():
        library, kind, count = name.split("|")
        lines.setdefault((library, kind), {})[count] = round(1e6 * min(seconds), 3)
    return [{"library": library, "hook": kind, "microseconds": line} for (library, kind), line in lines.items()]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.hook_counts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=60, help="slices for each (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write it to this file as well")
    options = parser.parse_args()
    found = {"machine": report.machine(), "rounds": options.rounds, "lines": measure(options.rounds)}
    for line in found["lines"]:
        print(line["library"], line["hook"], line["microseconds"])
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    leave_out_stale_steps()
    main()
