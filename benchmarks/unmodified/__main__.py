"""Programs of TensorFlow 2 and Keras, unmodified: alone, and under `python -m fastsup run --accelerate`.

    python -m benchmarks.unmodified [--rounds N] [program ...]

Each runs in its own process, both sides in turns. The table has the medians of the seconds of the whole process and of
the processor's seconds, the largest memory, and whether both have printed the same bits.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

PROGRAMS = Path(__file__).with_name("programs")
SIDES: dict[str, list[str]] = {"alone": [], "fastsup": ["-m", "fastsup", "run", "--accelerate"]}


class Run(NamedTuple):
    """One run of a program.

    Attributes:
      secs: seconds from start to end.
      cpu_secs: seconds of the processor, of all threads.
      mib: the largest resident memory, in MiB.
      printed: what it has printed.
    """

    secs: float
    cpu_secs: float
    mib: float
    printed: str


def run(program: Path, side: str) -> Run:
    """Runs a program."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        started = time.perf_counter()
        process = subprocess.Popen([sys.executable, *SIDES[side], str(program)], stdout=out, stderr=err)
        _, status, used = os.wait4(process.pid, 0)
        secs = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode:
            raise RuntimeError(f"{program.name} has failed ({side}):\n{err.read()[-3000:]}")
        return Run(secs, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, out.read())


def main() -> None:
    """Runs the programs, and prints the table."""
    known = sorted(path.stem for path in PROGRAMS.glob("*.py"))
    parser = argparse.ArgumentParser(prog="python -m benchmarks.unmodified", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("programs", nargs="*", metavar="program", help=f"of {', '.join(known)}; all by default")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each side")
    options = parser.parse_args()
    unknown = set(options.programs) - set(known)
    if unknown:
        parser.error(f"unknown programs: {', '.join(sorted(unknown))}")
    heads = ["program", "s alone", "s fastsup", "CPU s alone", "CPU s fastsup", "MiB alone", "MiB fastsup", "same bits"]
    table = Table(*heads)
    for name in options.programs or known:
        runs: dict[str, list[Run]] = {side: [] for side in SIDES}
        for _ in range(options.rounds):
            for side in SIDES:
                runs[side].append(run(PROGRAMS / f"{name}.py", side))
        printed = {each.printed for side in SIDES for each in runs[side]}
        figures = [
            f"{median(getattr(each, figure) for each in runs[side]):,.{digits}f}"
            for figure, digits in (("secs", 1), ("cpu_secs", 1), ("mib", 0))
            for side in SIDES
        ]
        table.add_row(name, *figures, "yes" if len(printed) == 1 else "no")
    Console().print(table)


if __name__ == "__main__":
    main()
