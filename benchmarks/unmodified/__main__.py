"""Programs of TensorFlow 2 and Keras, unmodified: alone, and under `python -m fastsup run --accelerate`.

    python -m benchmarks.unmodified [--rounds N] [program ...]

Each runs in its own process, both sides in turns. The table has the medians of the seconds of the whole process, the
largest memory, and whether both have printed the same bits.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

PROGRAMS = Path(__file__).with_name("programs")
SIDES: dict[str, list[str]] = {"alone": [], "fastsup": ["-m", "fastsup", "run", "--accelerate"]}


def run(program: Path, side: str) -> tuple[float, float, str]:
    """Runs a program.

    Returns:
      Seconds, MiB, and what it has printed.
    """
    command = ["/usr/bin/time", "-f", "%M KiB", sys.executable, *SIDES[side], str(program)]
    if not os.path.exists(command[0]):
        command = command[3:]
    started = time.perf_counter()
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - started
    if ended.returncode:
        raise RuntimeError(f"{program.name} has failed ({side}):\n{ended.stderr[-3000:]}")
    found = re.search(r"(\d+) KiB\s*$", ended.stderr)
    return seconds, int(found[1]) / 1024 if found else float("nan"), ended.stdout


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
    table = Table("program", "seconds alone", "fastsup", "ratio", "MiB alone", "fastsup", "same bits")
    for name in options.programs or known:
        runs = {side: [run(PROGRAMS / f"{name}.py", side) for _ in range(options.rounds)] for side in SIDES}
        seconds = {side: median(each[0] for each in runs[side]) for side in SIDES}
        memory = {side: median(each[1] for each in runs[side]) for side in SIDES}
        printed = {each[2] for side in SIDES for each in runs[side]}
        table.add_row(
            name,
            f"{seconds['alone']:.1f}",
            f"{seconds['fastsup']:.1f}",
            f"{seconds['alone'] / seconds['fastsup']:.2f}",
            f"{memory['alone']:,.0f}",
            f"{memory['fastsup']:,.0f}",
            "yes" if len(printed) == 1 else "no",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
