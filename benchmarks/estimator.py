"""Estimator against tensorflow-estimator 2.15 on TensorFlow 2.15, in one table.

    python3.11 -m venv reference
    reference/bin/pip install tensorflow-cpu==2.15.1 tensorflow-estimator==2.15.0
    python -m benchmarks.estimator --reference reference/bin/python

The two need different versions of TensorFlow: each runs in its own process, and they are measured in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits

from benchmarks.report import machine, ratio

WORKER = Path(__file__).with_name("estimator_worker.py")
SLICE_SECS = 1.5


@dataclass(frozen=True)
class Case:
    """A row of the table.

    Args:
      name: name of the worker's method.
      title: a few words for the table.
      at_least: the target, as a multiple of the reference's speed.
      unit: name of one step.
      fixed_steps: number of steps in a measurement, with the sides in turns after each step; None for as many steps at
        once as fill a slice.
    """

    name: str
    title: str
    at_least: float
    unit: str = "step"
    fixed_steps: int | None = None


CASES = (
    Case("trivial", "train: linear model of 10 features, fed by tf.data", 20),
    Case("digits", "train: digits, batches of 32, a hidden layer", 3),
    Case("heavy", "train: products of 1024x1024 matrices", 0.97),
    Case("canned_linear", "train: canned LinearClassifier of 4 features", 3),
    Case("wide_and_deep", "train: canned DNNLinearCombinedClassifier", 0.97),
    Case("first_step", "from train() to the end of the first step", 1, "call", 3),
    Case("in_turns", "20 x (train 10 steps, evaluate 10)", 1, "turn", 20),
    Case("evaluations", "train_and_evaluate: 100 steps, 11 evaluations", 1, "run", 2),
    Case("evaluations_in_one_graph", "the same, EvalSpec(keep_graph=True)", 1, "run", 2),
    Case("predictions", "predict of one example", 1, "call", 5),
    Case("kept_predictions", "the same, Predictor against 2.15's contrib.predictor", 3, "call"),
    Case("loaded_model", "the same, an exported model and tf.saved_model.load", 0.97, "call"),
)


class Side:
    """A process that measures one implementation.

    Args:
      python: its interpreter.
      name: "fastsup" or "reference".
      digits: path of the file with the digits.
    """

    def __init__(self, python: str, name: str, digits: Path) -> None:
        path = os.pathsep.join(filter(None, [str(WORKER.parents[1]), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path if name == "fastsup" else ""}
        self.name = name
        self._process = subprocess.Popen(
            [python, str(WORKER), name, str(digits)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self.versions: dict[str, str] = self._answer()
        self.steps: dict[str, int] = {}

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"The process that measures {self.name} has ended with {self._process.wait()}.")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def measure(self, case: Case, steps: int) -> float:
        """Seconds per step."""
        assert self._process.stdin is not None
        print(json.dumps({"case": case.name, "steps": steps}), file=self._process.stdin, flush=True)
        return float(self._answer()["seconds"]) / steps

    def prepare(self, case: Case) -> None:
        """Warms up, and finds out how many steps fill a slice."""
        # The first step of a session takes as long as hundreds of later ones.
        steps = case.fixed_steps or 400
        secs_per_step = self.measure(case, steps)
        if case.fixed_steps is not None:
            self.steps[case.name] = 1
            return
        while secs_per_step * steps < SLICE_SECS / 2:
            steps = max(2 * steps, round(SLICE_SECS / 2 / secs_per_step))
            secs_per_step = self.measure(case, steps)
        self.steps[case.name] = max(20, round(SLICE_SECS / secs_per_step))

    def close(self) -> None:
        """Ends the process."""
        self._process.terminate()
        self._process.wait()


def measure(sides: Sequence[Side], cases: Sequence[Case], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Seconds per step of each round, by case and side. The sides take turns."""
    samples: dict[str, dict[str, list[float]]] = {}
    for case in cases:
        found: dict[str, list[float]] = {side.name: [] for side in sides}
        for side in sides:
            side.prepare(case)
        order = list(sides)
        for _ in range(rounds):
            parts: dict[str, list[float]] = {side.name: [] for side in sides}
            for _ in range(case.fixed_steps or 1):
                for side in order:
                    parts[side.name].append(side.measure(case, side.steps[case.name]))
                order.reverse()
            for name, secs_per_step in parts.items():
                found[name].append(sum(secs_per_step) / len(secs_per_step))
        samples[case.name] = found
    return samples


def table_of(cases: Sequence[Case], samples: dict[str, dict[str, list[float]]]) -> Table:
    """The best round of each."""
    table = Table("what", title="best round", title_justify="left")
    for heading in ("fastsup", "2.15", "times as fast"):
        table.add_column(heading, justify="right", no_wrap=True)
    for case in cases:
        ours, reference = (min(samples[case.name][name]) for name in ("fastsup", "reference"))
        times = [f"{secs * 1e6:,.1f} µs" if secs < 1e-3 else f"{secs * 1e3:,.1f} ms" for secs in (ours, reference)]
        table.add_row(case.title, *times, ratio(reference / ours, "≥", case.at_least))
    return table


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.estimator", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reference", required=True, metavar="PYTHON", help="interpreter that has TensorFlow 2.15")
    parser.add_argument("--case", action="append", choices=[case.name for case in CASES], metavar="NAME")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each side (5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything to this file as well")
    options = parser.parse_args()
    if shutil.which(options.reference) is None:
        parser.error(f"argument --reference: there is no interpreter {options.reference}")
    cases = [case for case in CASES if not options.case or case.name in options.case]
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)
    with tempfile.TemporaryDirectory(prefix="fastsup-benchmark-") as folder:
        digits = Path(folder, "digits.npz")
        data = load_digits()
        np.savez(digits, images=data.data.astype(np.float32), labels=data.target.astype(np.int64))
        sides: list[Side] = []
        try:
            sides += [Side(sys.executable, "fastsup", digits)]
            sides += [Side(options.reference, "reference", digits)]
            with console.status("measuring"):
                samples = measure(sides, cases, options.rounds)
        finally:
            for side in sides:
                side.close()
    console.print(table_of(cases, samples))
    here, versions = machine(), sides[1].versions
    console.print(
        f"{here['processor']}, {here['cores']} cores; fastsup on TensorFlow {here['tensorflow']}, Python "
        f"{here['python']}; the reference on TensorFlow {versions['tensorflow']}, Python {versions['python']}; "
        f"{here['date']}"
    )
    if options.json:
        options.json.write_text(
            json.dumps({"machine": here, "reference": versions, "secs_per_step": samples}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
