"""What each way to save leaves behind when the power is lost, and when a file operation fails: fastsup's and others'.

    python -m benchmarks.savers --json benchmarks/results/savers.json      # all: hours, and gigabytes of packages once
    python -m benchmarks.savers --saver orbax --states 20 --faults 5       # one, roughly
    python -m website.measured                                             # the tables of docs/savers.md

Each saver trains the same, in its documented way. A library that is loaded before libc's functions logs its file
operations, and makes them fail. From the log, a model of a disk makes what may be there after a loss of power at any
operation; the saver starts again from that. `tests/faults` does the same for fastsup alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import peer_environments, report
from benchmarks.arguments import check_file_to_write, positive
from benchmarks.savers import table
from benchmarks.savers.checks import check
from benchmarks.savers.registry import SAVERS, Saver
from benchmarks.savers.runs import build_shim

STATES, FAULTS, JOBS = 150, 40, 2


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    """Parses the command line; None for `sys.argv`."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.savers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [saver.program for saver in SAVERS]
    parser.add_argument(
        "--saver", action="append", choices=names, metavar="NAME", help=f"only this: {', '.join(names)}"
    )
    parser.add_argument(
        "--states", type=positive, default=STATES, help=f"states of the directory to check, of each kind ({STATES})"
    )
    parser.add_argument(
        "--faults", type=positive, default=FAULTS, help=f"operations that fail, for each error ({FAULTS})"
    )
    parser.add_argument("--jobs", type=positive, default=JOBS, help=f"savers at the same time ({JOBS})")
    parser.add_argument("--environments", type=Path, metavar="FOLDER", help="where other libraries are installed")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the counts; of savers that aren't run, those in FILE stay"
    )
    options = parser.parse_args(arguments)
    check_file_to_write(parser, "--json", options.json)
    return options


def checked(saver: Saver, folder: Path, states: int, faults: int) -> dict[str, Any]:
    """Checks a saver in a temporary folder.

    Args:
      saver: what is checked.
      folder: where the environments lie.
      states: how many states of the directory are checked, of each kind.
      faults: how many operations fail, for each error.

    Returns:
      The counts; or "failed", with the reason why there are none.
    """
    python = peer_environments.python_of(saver.environment, folder)
    if python is None:
        return {"failed": f"the environment {saver.environment} isn't installed"}
    with tempfile.TemporaryDirectory() as place:
        try:
            return check(saver, python, build_shim(Path(place)), Path(place), states, faults)
        except RuntimeError as error:
            return {"failed": str(error)}


def run(
    chosen: list[Saver], options: argparse.Namespace, folder: Path, done: Callable[[str, dict[str, Any]], None]
) -> None:
    """Checks savers, and calls `done` with the title and the result of each.

    Args:
      chosen: the savers.
      options: the parsed command line.
      folder: where the environments lie.
      done: called in this thread.
    """
    with ThreadPoolExecutor(options.jobs) as pool:
        titles = {pool.submit(checked, saver, folder, options.states, options.faults): saver.title for saver in chosen}
        for future in as_completed(titles):
            done(titles[future], future.result())


def main(arguments: list[str] | None = None) -> int:
    """Runs the command. Returns the exit code: 1 if a saver could not be checked."""
    options = parse_options(arguments)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    folder = options.environments or peer_environments.default_folder()
    chosen = [saver for saver in SAVERS if not options.saver or saver.program in options.saver]
    with console.status(f"installing other libraries in {folder}"):
        peer_environments.install(folder, {saver.environment for saver in chosen})
    savers: dict[str, Any] = {}
    if options.json and options.saver and options.json.exists():
        savers = json.loads(options.json.read_text())["savers"]

    def done(title: str, result: dict[str, Any]) -> None:
        savers[title] = {**result, "states": options.states, "faults": options.faults}
        console.print(f"{title}: {result.get('failed', 'checked')}")
        if options.json:
            in_order = {saver.title: savers[saver.title] for saver in SAVERS if saver.title in savers}
            results = {"machine": report.machine(), "savers": in_order}
            options.json.write_text(json.dumps(results, indent=1) + "\n")

    run(chosen, options, folder, done)
    shown = Table(title="after a loss of power, and after a failing file operation", title_justify="left")
    for heading in table.HEADINGS:
        shown.add_column(heading, justify="left" if heading == table.HEADINGS[0] else "right")
    for row in table.rows_of(savers):
        shown.add_row(*row)
    console.print(shown)
    return int(any("failed" in result for result in savers.values()))


if __name__ == "__main__":
    sys.exit(main())
