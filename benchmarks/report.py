"""The results, as a table for people and as JSON for programs."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Any

import numpy
import tensorflow as tf
from rich.markup import escape
from rich.table import Table

import fastsup
from benchmarks.cases import INLINE, POOL, SINGLE, Case, Row
from benchmarks.memory import Growth

FLOOR_MARKS = {POOL: "p", INLINE: "c", SINGLE: "s"}
# Seconds per step of each slice, by case and contender.
Samples = dict[str, dict[str, list[float]]]


@dataclass(frozen=True)
class Line:
    """A row of the table with its measured values, in seconds per step."""

    case: str
    row: Row
    ours: float
    floor: float
    floor_name: str
    peer: float | None

    @property
    def against_floor(self) -> float:
        return self.ours / self.floor

    @property
    def extra_ns(self) -> float:
        """Nanoseconds on top of the floor."""
        return (self.ours - self.floor) * 1e9

    @property
    def against_peer(self) -> float | None:
        return self.peer / self.ours if self.peer else None

    @property
    def missed(self) -> bool:
        """True if a target was missed by the two decimals that the table shows."""
        row, faster = self.row, self.against_peer
        too_slow = row.at_most is not None and round(self.against_floor, 2) > row.at_most
        too_slow |= row.extra_ns is not None and round(self.extra_ns, 1) > row.extra_ns
        return too_slow or (row.at_least is not None and faster is not None and round(faster, 2) < row.at_least)


def lines_of(case: Case, samples: dict[str, list[float]]) -> list[Line]:
    """Returns the lines of a case, from the best slice of each contender."""
    best = {name: min(values) for name, values in samples.items()}
    lines = []
    for row in case.rows:
        floor = min(row.floors, key=best.__getitem__)
        peer = best[row.peer] if row.peer else None
        lines.append(Line(case.name, row, best[row.ours], best[floor], floor, peer))
    return lines


def micros(seconds: float) -> str:
    value = seconds * 1e6
    return f"{value:,.3f}" if value < 1 else f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def ratio(value: float | None, sign: str, target: float | None) -> str:
    """Returns a ratio as text, with its target, if there is one, and whether the target is met."""
    if value is None or target is None:
        return "" if value is None else f"{value:.2f} x"
    met = round(value, 2) <= target if sign == "≤" else round(value, 2) >= target
    return f"{value:.2f} x  {sign} {target:g} " + ("[green]✓[/]" if met else "[bold red]✗[/]")


def over_floor(line: Line) -> str:
    """Returns the comparison with the floor as text: a ratio, or nanoseconds if the target is in nanoseconds."""
    target = line.row.extra_ns
    if target is None:
        return ratio(line.against_floor, "≤", line.row.at_most)
    met = round(line.extra_ns, 1) <= target
    return f"{line.extra_ns:+.1f} ns  ≤ {target:g} " + ("[green]✓[/]" if met else "[bold red]✗[/]")


def results_table(lines: Iterable[Line]) -> Table:
    """Returns the table of fastsup, the floor and TensorFlow's class of the same name."""
    table = Table(title="µs per step, best round", title_justify="left")
    table.caption = "floor: the bare callable on the thread pool (p), in the calling thread (c), or single-threaded (s)"
    table.add_column("case", no_wrap=True)
    table.add_column("step")
    for heading in ("fastsup", "floor", "vs. floor", "TF", "vs. TF"):
        table.add_column(heading, justify="right", no_wrap=True)
    for case, group in groupby(lines, key=attrgetter("case")):
        for number, line in enumerate(group):
            kind = FLOOR_MARKS.get(line.floor_name, " ")
            table.add_row(
                case if number == 0 else "",
                escape(line.row.title),
                micros(line.ours),
                f"{micros(line.floor)} [bold]{kind}[/]",
                over_floor(line),
                micros(line.peer) if line.peer else "",
                ratio(line.against_peer, "≥", line.row.at_least),
            )
        table.add_section()
    return table


def contenders_table(samples: Samples) -> Table:
    """Returns the table of all contenders of all cases."""
    table = Table("case", "contender", title="µs per step", title_justify="left")
    for heading in ("best", "median", "worst"):
        table.add_column(heading, justify="right")
    for case, contenders in samples.items():
        for name, values in contenders.items():
            table.add_row(case, name, *(micros(value) for value in (min(values), median(values), max(values))))
        table.add_section()
    return table


def memory_table(growths: Iterable[Growth]) -> Table:
    """Returns the table of the resident memory before and after."""
    table = Table("run", title="resident memory, MB", title_justify="left")
    for heading in ("after the warm-up", "at the end", "grown", "at most"):
        table.add_column(heading, justify="right")
    for growth in growths:
        sizes = [f"{size / 1e6:,.1f}" for size in (growth.before, growth.after, growth.grown)]
        limit = "" if growth.at_most is None else f"{growth.at_most / 1e6:g}{', missed' if growth.missed else ''}"
        table.add_row(growth.title, *sizes, limit, style="bold red" if growth.missed else None)
    return table


def geometric_mean(lines: Iterable[Line]) -> float | None:
    """Returns the geometric mean of the ratios to TensorFlow, or None without any."""
    logs = [math.log(line.against_peer) for line in lines if line.against_peer]
    return math.exp(sum(logs) / len(logs)) if logs else None


def processor() -> str:
    """Returns the name of the processor, or "" if the system doesn't tell it."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")), "")


def machine() -> dict[str, Any]:
    """Returns the date, the machine and the versions."""
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "processor": processor(),
        "cores": len(affinity(0)) if affinity else os.cpu_count(),
        "load": os.getloadavg()[0],
        "system": platform.platform(),
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "numpy": numpy.__version__,
        "fastsup": fastsup.__version__,
    }


def as_json(
    lines: Iterable[Line], samples: Samples, rounds: int, memory: Iterable[Growth], errors: dict[str, str]
) -> dict[str, Any]:
    """Everything that was measured."""
    return {
        "machine": machine(),
        "rounds": rounds,
        "unit": "seconds per step",
        "rows": [
            {
                "case": line.case,
                "title": line.row.title,
                "fastsup": line.ours,
                "floor": line.floor,
                "floor_is": line.floor_name,
                "tensorflow": line.peer,
                "against_floor": line.against_floor,
                "at_most": line.row.at_most,
                "extra_ns": line.extra_ns,
                "extra_ns_at_most": line.row.extra_ns,
                "times_faster": line.against_peer,
                "at_least": line.row.at_least,
                "missed": line.missed,
            }
            for line in lines
        ],
        "samples": samples,
        "memory": [growth.as_json() for growth in memory],
        "errors": errors,
    }
