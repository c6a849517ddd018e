"""Loses power at the file operations of a saver, and lets them fail; counts what becomes of what it has saved."""

from __future__ import annotations

import collections
import errno
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.savers.outcomes import CLASSES, after_power_loss, is_lost, is_unreported
from benchmarks.savers.registry import Saver
from benchmarks.savers.runs import FOLDERS, NO_END, Program, lost_power

__all__ = ["FAULTS", "check"]

# The first training ends at the first step, the second one goes on to the second; the last is that of later starts.
FIRST, SECOND, LATER = 12, 20, 25
# What fails: the error, and whether all operations from the first on fail.
FAULTS = (("EIO", False), ("ENOSPC", True))
EXAMPLES = 3


class _Count:
    """How many outcomes there are of each class, and examples of those that aren't ok."""

    def __init__(self, classes: Iterable[str]) -> None:
        self.counts = dict.fromkeys(classes, 0)
        self.examples: dict[str, list[str]] = collections.defaultdict(list)

    def add(self, outcome: str, about: str) -> None:
        self.counts[outcome] += 1
        if outcome != "ok" and len(self.examples[outcome]) < EXAMPLES:
            self.examples[outcome].append(about)


def evenly(count: int, wanted: int) -> set[int]:
    """So many numbers below `count`, evenly spread; all if there are fewer."""
    return {number * count // wanted for number in range(wanted)} if count > wanted else set(range(count))


def power_loss(program: Program, operations: list[Any], ordered: bool, wanted: int) -> dict[str, Any]:
    """Starts after losses of power at the operations of a log.

    Args:
      program: the program, whose log it is.
      operations: the log.
      ordered: whether the file system keeps the order of changes: see `lost_power.crashes`.
      wanted: how many states of the directory are checked.
    """

    def states() -> Any:
        return lost_power.crashes(operations, blobs, str(program.watched), folders=FOLDERS, ordered=ordered)

    blobs = program.blobs()
    made = sum(1 for _ in states())
    chosen = evenly(made, wanted)
    count = _Count(CLASSES)
    refused = 0
    for number, crash in enumerate(states()):
        if number not in chosen:
            continue
        program.lay_out(crash.files, crash.folders)
        run = program.run(LATER)
        outcome = after_power_loss(run, crash.saved)
        refused += outcome == "ok" and not run.ended
        operation = operations[crash.at - 1]
        about = f"after {operation.name} {operation.path}, {crash.saved} saved: started {run.started} {run.error}"
        count.add(outcome, about)
    return {"made": made, "checked": len(chosen), **count.counts, "refused": refused, "examples": count.examples}


def failing(program: Program, wanted: int) -> dict[str, Any]:
    """Lets file operations of a training fail, and starts it again without the fault.

    Args:
      program: the program.
      wanted: how many operations fail, for each error.
    """

    def trained(fault: str) -> tuple[Any, list[Any], Any, dict[str, bytes]]:
        program.lay_out(base, folders)
        run = program.run_with_faults(SECOND, fault)
        operations = program.operations()
        return run, operations, program.run(LATER), base

    program.empty()
    program.run_with_faults(FIRST, "")
    before = _saved(program.operations(), 0)
    base = program.files()
    folders = [str(path.relative_to(program.watched)) for path in sorted(program.watched.rglob("*")) if path.is_dir()]
    # A delay of no length has no effect, and is logged.
    run, operations, later, _ = trained("any,/,1,0,delay 0")
    if not run.ended or later.started is None:
        raise RuntimeError(f"a training without a fault fails: {run}, {later}")
    total = sum(operation.name == "failed" for operation in operations)
    last = later.started[0]
    count = _Count(("ok", "lost", "unreported", "hung"))
    faults = 0
    for error, lasting in FAULTS:
        for nth in sorted(evenly(total, wanted)):
            fault = f"any,/,{nth + 1},{0 if lasting else nth + 1},error {getattr(errno, error)}"
            run, operations, later, _ = trained(fault)
            failed = next((operation for operation in operations if operation.name == "failed"), None)
            if failed is None:
                continue
            faults += 1
            lost = is_lost(run, later, before, _saved(operations, before))
            unreported = is_unreported(run, later, last)
            about = f"{error}{' on' if lasting else ''} of {failed.second} {failed.path}: {run}; later {later}"
            if run.error.startswith(NO_END):
                count.add("hung", about)
            for outcome, happened in (("lost", lost), ("unreported", unreported), ("ok", not (lost or unreported))):
                if happened:
                    count.add(outcome, about)
    return {"operations": total, "faults": faults, **count.counts, "examples": count.examples}


def _saved(operations: Iterable[Any], before: int) -> int:
    """The last step whose save has returned."""
    return max((int(each.path) for each in operations if each.name == "returned"), default=before)


def check(
    saver: Saver,
    python: str,
    shim: Path,
    place: Path,
    states: int,
    faults: int,
    start: Callable[..., Any] = subprocess.Popen,
) -> dict[str, Any]:
    """Checks a saver.

    Args:
      saver: what is checked.
      python: the interpreter of its environment.
      shim: path of the compiled shim.
      place: an empty folder.
      states: how many states of the directory are checked, of each kind of file system.
      faults: how many operations fail, for each error.
      start: starts a process, as `subprocess.Popen` does.

    Returns:
      The counts, and the versions.

    Raises:
      RuntimeError: the program fails without a fault, or the log of its operations doesn't explain what is there.
    """
    program = Program(saver, python, shim, place, start)
    try:
        for last in (FIRST, SECOND):
            run = program.run_logged(last)
            if not run.ended:
                raise RuntimeError(f"{saver.title} fails without a fault: {run.error}")
        operations = program.operations()
        explained = lost_power.contents(operations, program.blobs(), str(program.watched), FOLDERS)
        there = program.files()
        if explained != there:
            differing = sorted(path for path in {*explained, *there} if explained.get(path) != there.get(path))
            raise RuntimeError(f"the log of {saver.title} doesn't explain {', '.join(differing)}")
        return {
            "program": saver.program,
            "environment": saver.environment,
            "operations": len(operations),
            "fsync": sum(operation.name == "fsync" for operation in operations),
            "power": {
                "posix": power_loss(program, operations, False, states),
                "ordered": power_loss(program, operations, True, states),
            },
            "failing": failing(program, faults),
            "versions": program.versions,
        }
    finally:
        program.close()
