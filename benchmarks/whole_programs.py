"""Whole programs, each run in its own process: speed, start, end and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from rich.table import Table

WORKER = Path(__file__).with_name("program_worker.py")


@dataclass(frozen=True)
class WholeProgram:
    """A program of `program_worker.py`.

    Attributes:
      name: its name there.
      title: its name in the table.
      steps: steps of a run; of a quick one a tenth.
      sides: the titles of its sides, by name.
    """

    name: str
    title: str
    steps: int
    sides: dict[str, str]


PROGRAMS = (
    WholeProgram(
        "reinforcement_learning",
        "policy gradient on a cart-pole: run() for each action, run() for each episode",
        20_000,
        {"tensorflow": "TensorFlow, MonitoredTrainingSession", "fastsup": "fastsup, MonitoredTrainingSession"},
    ),
    WholeProgram(
        "wide_and_deep",
        "wide and deep model of hashed categories, fed from CSV by tf.data, batches of 128",
        5_000,
        {
            "tensorflow": "TensorFlow, MonitoredTrainingSession",
            "fastsup": "fastsup, Estimator",
            "estimator": "TensorFlow 2.15, Estimator",
        },
    ),
)


@dataclass(frozen=True)
class Felt:
    """The figures of one run.

    Attributes:
      steps_per_sec: steps per second, from the end of the first step to the end of the last one.
      first_step_secs: seconds from the start of the process to the end of the first step.
      end_secs: seconds from the end of the last step to the exit of the process.
      peak_mb: largest resident memory of the process, in millions of bytes.
    """

    steps_per_sec: float
    first_step_secs: float
    end_secs: float
    peak_mb: float


Figures = TypeVar("Figures")
# The runs, by program and side.
Runs = dict[str, dict[str, list[Felt]]]


def run_once(
    name: str,
    side: str,
    steps: int,
    python: str = sys.executable,
    start: Callable[..., subprocess.Popen[str]] = subprocess.Popen,
) -> Felt:
    """Runs a program in a fresh process.

    Args:
      name: the program.
      side: the side.
      steps: steps to run.
      python: interpreter to run it with.
      start: starts a process, as `subprocess.Popen` does.

    Raises:
      RuntimeError: the program has failed.
    """
    command = [python, str(WORKER), name, side, str(steps)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    if python != sys.executable:
        environment.pop("PYTHONPATH")
    started = time.monotonic()
    process = start(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    assert process.stdout is not None
    with process.stdout:
        output = process.stdout.read()
    process.wait()
    ended = time.monotonic()
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} has failed with exit code {process.returncode}: run it to see why")
    readings = json.loads(output.splitlines()[-1])
    return Felt(
        steps_per_sec=(steps - 1) / (readings["last"] - readings["first"]),
        first_step_secs=readings["first"] - started,
        end_secs=ended - readings["last"],
        peak_mb=readings["peak_mb"],
    )


def measure(rounds: int, quick: bool = False, reference: str | None = None) -> Runs:
    """Runs all programs, the sides of each in turns.

    Args:
      rounds: runs of each side.
      quick: whether to run a tenth of the steps.
      reference: interpreter with TensorFlow 2.15, for the side `estimator`; None to leave that side out.
    """
    runs: Runs = {}
    for program in PROGRAMS:
        sides = [side for side in program.sides if side != "estimator" or reference is not None]
        runs[program.name] = {side: [] for side in sides}
        for _ in range(rounds):
            for side in sides:
                python = reference if side == "estimator" and reference is not None else sys.executable
                steps = program.steps // 10 if quick else program.steps
                runs[program.name][side].append(run_once(program.name, side, steps, python))
    return runs


def medians(felt: Sequence[Figures]) -> Figures:
    """The median of each figure of some runs, which are objects of one dataclass."""
    rows = [asdict(run) for run in felt]  # type: ignore[call-overload]
    return type(felt[0])(**{name: median(row[name] for row in rows) for name in rows[0]})


def rows_of(runs: Runs) -> Iterator[tuple[str, str, Felt]]:
    """The program's title, the side's title and the medians, for each row of the table."""
    for program in PROGRAMS:
        for side, felt in runs.get(program.name, {}).items():
            yield program.title, program.sides[side], medians(felt)


def programs_table(runs: Runs) -> Table:
    """The figures as a table."""
    table = Table(title="Whole programs, a process each: medians", title_justify="left")
    table.add_column("program")
    table.add_column("side")
    for heading in ("steps/s", "first step, s", "end, s", "peak memory, MB"):
        table.add_column(heading, justify="right", no_wrap=True)
    previous = None
    for title, side, felt in rows_of(runs):
        table.add_row(
            "" if title == previous else title,
            side,
            f"{felt.steps_per_sec:,.0f}",
            f"{felt.first_step_secs:.2f}",
            f"{felt.end_secs:.2f}",
            f"{felt.peak_mb:,.0f}",
        )
        previous = title
    return table


def as_json(runs: Runs) -> dict[str, Any]:
    """The runs for `--json`."""
    return {name: {side: [asdict(run) for run in felt] for side, felt in sides.items()} for name, sides in runs.items()}
