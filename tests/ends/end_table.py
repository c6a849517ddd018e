"""How programs end while daemon threads use sessions: exit codes, times and what is printed, of many runs.

`python tests/ends/end_table.py --runs 50 --write` measures all that the table of docs/ends.md says, and writes it. Each
run is its own process, forked from one that has imported TensorFlow and made no session, and it ends as any script
does: by the finalization of its interpreter. The whole table takes over an hour. With `--keep FILE` it can be measured
in pieces: the runs that the file has count.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
import warnings
from typing import Any, NamedTuple

PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "ends.md")
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"
# Seconds after which a run is taken to hang.
HANG_SECS = 40.0
# What the short form has: all kinds with this end, and all ends with this kind.
FIRST_END, WORST_KIND = "the script ends", "`Session`, new fetches in each run"
NOISE = ("FATAL", "terminate called", "Fatal Python error", "Exception ignored", "atexit", "the child hangs")


class Cell(NamedTuple):
    """One place of the table: whose sessions, what runs, how the program ends."""

    impl: str
    kind: str
    end: str


class Outcome(NamedTuple):
    """What became of one run.

    Args:
      code: the exit code, minus the signal that it died of, or None where it hung.
      seconds: from the beginning of the end to the exit.
      noise: the lines that shouldn't have been printed.
    """

    code: int | None
    seconds: float
    noise: list[str]


class InChild(Exception):
    """Takes a forked child out of the parent's code."""


class Run:
    """One run of a cell, in a child.

    Args:
      cell: the cell.
      delay: seconds from the start to the end.
    """

    def __init__(self, cell: Cell, delay: float) -> None:
        self.cell, self.delay = cell, delay
        self.folder = tempfile.mkdtemp()
        self.output = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed when the run has ended)
        # Written by the child when its end begins.
        self.mark = os.path.join(self.folder, "mark")
        self.started = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            os.dup2(self.output.fileno(), 1)
            os.dup2(self.output.fileno(), 2)
            raise InChild(self)

    def outcome(self) -> Outcome | None:
        """What became of it; None as long as it runs."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        now = time.monotonic()
        if not pid and now - self.started < HANG_SECS:
            return None
        if not pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        began = os.stat(self.mark).st_mtime if os.path.exists(self.mark) else time.time()
        seconds = time.time() - began
        self.output.seek(0)
        text = self.output.read()
        self.output.close()
        # Something may still be written there, by a child of the child's.
        shutil.rmtree(self.folder, ignore_errors=True)
        lines = text.splitlines()
        noise = [line for line in lines if any(word in line for word in NOISE)]
        tracebacks = sum(line.startswith("Traceback") for line in lines)
        if tracebacks != programs.ENDS[self.cell.end].tracebacks:
            noise.append(f"{tracebacks} tracebacks: {text[-2000:]}")
        return Outcome(os.waitstatus_to_exitcode(status) if pid else None, seconds, noise)


def as_expected(cell: Cell, outcome: Outcome) -> bool:
    """Whether a run ended as such a program should."""
    return outcome.code == programs.ENDS[cell.end].code and not outcome.noise


def kept_outcomes(path: str) -> dict[Cell, list[Outcome]]:
    """The outcomes that earlier calls added to a file."""
    outcomes: dict[Cell, list[Outcome]] = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for line in file:
                cell, outcome = json.loads(line)
                outcomes.setdefault(Cell(*cell), []).append(Outcome(*outcome))
    return outcomes


def measure(cells: list[Cell], runs: int, jobs: int, path: str = os.devnull) -> dict[Cell, list[Outcome]]:
    """Runs each cell so many times, less the runs that the file has.

    Args:
      cells: the cells.
      runs: how many runs of each.
      jobs: how many runs at the same time.
      path: the file of earlier outcomes, to which each new outcome is added as a line of JSON.
    """
    kept = kept_outcomes(path)
    outcomes = {cell: kept.get(cell, []) for cell in cells}
    waiting = [
        (cell, programs.KINDS[cell.kind].span * random.random())
        for number in range(runs)
        for cell in cells
        if number >= len(outcomes[cell])
    ]
    running: list[Run] = []
    while waiting or running:
        while waiting and len(running) < jobs:
            running.append(Run(*waiting.pop(0)))
        for run in list(running):
            outcome = run.outcome()
            if outcome is not None:
                running.remove(run)
                outcomes[run.cell].append(outcome)
                with open(path, "a", encoding="utf-8") as file:
                    file.write(json.dumps([run.cell, outcome]) + "\n")
        time.sleep(0.005)
    return outcomes


def child(run: Run) -> Any:
    """The program of a run, up to its last line."""
    program = programs.Program(run.cell.impl, run.folder)
    programs.KINDS[run.cell.kind].start(program)
    time.sleep(run.delay)
    with open(run.mark, "w", encoding="utf-8"):
        pass
    programs.ENDS[run.cell.end].act(program)
    return program  # A script's names are there to the end.


def text_of(outcomes: dict[Cell, list[Outcome]]) -> list[str]:
    """The table: a row for what runs; for whose sessions, how many runs ended badly, and how long they took."""
    columns = ["what runs in daemon threads"]
    for name in ("fastsup", "TensorFlow"):
        columns += [f"{name}: ended badly", f"{name}: median, slowest"]
    lines = [f"| {' | '.join(columns)} |", "|---|--:|--:|--:|--:|"]
    for kind in programs.KINDS:
        parts = [kind]
        for impl in ("fastsup", "tensorflow"):
            of_kind = {cell: found for cell, found in outcomes.items() if (cell.impl, cell.kind) == (impl, kind)}
            every = [outcome for found in of_kind.values() for outcome in found]
            if not every:
                parts += ["", ""]
                continue
            bad = sum(not as_expected(cell, outcome) for cell, found in of_kind.items() for outcome in found)
            seconds = [outcome.seconds for outcome in every]
            parts += [f"{bad} of {len(every)}", f"{statistics.median(seconds):.1f} s, {max(seconds):.1f} s"]
        lines.append(f"| {' | '.join(parts)} |")
    return lines


def problems(outcomes: dict[Cell, list[Outcome]]) -> list[str]:
    """A line for each cell with runs that didn't end as they should."""
    lines = []
    for cell, found in outcomes.items():
        bad = [outcome for outcome in found if not as_expected(cell, outcome)]
        if bad:
            codes = ", ".join(sorted({str(outcome.code) for outcome in bad}))
            lines.append(f"{' / '.join(cell)}: {len(bad)} of {len(found)}, exit codes {codes}: {bad[0].noise}")
    return lines


def write_page(table: list[str]) -> None:
    with open(PAGE, encoding="utf-8") as file:
        before, rest = file.read().split(BEGIN)
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(before + BEGIN + "\n".join(table) + "\n" + END + rest.split(END)[1])


def main() -> None:
    # A shell lets what it starts in the background ignore SIGINT, and Python leaves it so.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1, help="runs of each cell")
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time")
    parser.add_argument("--impl", choices=["fastsup", "tensorflow"], help="only these sessions")
    parser.add_argument("--kind", default="", help="only what runs of this name, or part of it")
    parser.add_argument("--end", default="", help="only the ends of this name, or part of it")
    parser.add_argument("--short", action="store_true", help="a fifth of the cells, without forks")
    parser.add_argument("--keep", default=os.devnull, metavar="FILE", help="count the runs in it, and add the new ones")
    parser.add_argument("--write", action="store_true", help="write the table of docs/ends.md")
    parser.add_argument("--json", action="store_true", help="print the problems as a JSON list, and no table")
    arguments = parser.parse_args()
    cells = [
        Cell(impl, kind, end)
        for impl in ("fastsup", "tensorflow")
        for kind in programs.KINDS
        for end in programs.ENDS
        if (impl == "fastsup" or programs.KINDS[kind].in_tensorflow) and arguments.impl in (None, impl)
        if arguments.kind in kind and arguments.end in end
    ]
    if arguments.short:
        cells = [
            cell for cell in cells if cell.end == FIRST_END or (cell.kind == WORST_KIND and "fork" not in cell.end)
        ]
    outcomes = measure(cells, arguments.runs, arguments.jobs, arguments.keep)
    if arguments.json:
        print(json.dumps({"cells": len(outcomes), "problems": problems(outcomes)}))
        return
    table = text_of(outcomes)
    print("\n".join([*table, "", *problems(outcomes)]))
    if arguments.write:
        write_page(table)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    warnings.simplefilter("ignore")
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import programs

    if os.environ.get("FASTSUP_TEST_WORLD") == "v1":
        programs.v1.disable_v2_behavior()
    programs.v1.logging.set_verbosity(programs.v1.logging.ERROR)
    in_child = None
    try:
        main()
    except InChild as found:
        in_child = found.args[0]
    if in_child is not None:
        program = child(in_child)
