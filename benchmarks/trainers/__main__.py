"""The same training in the loops of several libraries: lines, time per step, and what is left after a kill.

    python -m benchmarks.trainers                                                   # what this interpreter has
    python -m benchmarks.trainers --python lightning=ENV/bin/python --python ignite=ENV/bin/python
    python -m benchmarks.trainers keras lightning --json results.json               # two programs

Each program trains a classifier of handwritten digits, with an evaluation after each epoch, early stopping, and the
best checkpoint, and goes on when it is started again. fastsup's programs are those of the folder `examples`, the others
are in `benchmarks/trainers/programs`, as the documentation of their libraries shows it. An interpreter needs
scikit-learn and the libraries of its program; one that lacks something is left out, with a line that says so.

Lines are those of the program that are not blank, a comment or a docstring.

A step is measured without imports, compilation, evaluation and saves: callbacks of the library itself, one before the
first step of an epoch and one after its last step, take the time of each epoch. The median of all epochs but the first
one, divided by the steps of an epoch, is the time of a step, and the median of several processes is shown. It includes
batches, what the loop logs, and its progress display, all as they are by default. Output goes to a file. Each
library has one thread within an operation (`runs.THREADS`): with more, PyTorch's threads wait for each other in steps
as short as these. JAX's last step is waited for.

The first step is measured from the start of the process.

Each program is killed with `kill -9` in the middle of an epoch, 20 steps into it, after 5, 20 and 35 epochs. The steps
lost are those between the kill and the step from which a restart goes on. SIGTERM comes after 20 epochs and 20 steps.
For early stopping's count, all steps have the learning rate 0, so that no evaluation is better than the first one: a
program that was killed in its fifth epoch must end with the same evaluation as one that wasn't. For the best
checkpoint, the restart trains with wrong labels: the best one at the end must be as good as the one before the kill.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.arguments import check_file_to_write, positive
from benchmarks.trainers.registry import PROGRAMS, Program
from benchmarks.trainers.runs import code_lines, is_installed, kills, step_secs, versions_of
from benchmarks.trainers.table import markdown

__all__ = ["main", "parse_options"]

ROUNDS, EPOCHS = 3, 60


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    """Parses the command line; None for `sys.argv`. `python` is a dictionary of interpreters by program."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.trainers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [program.name for program in PROGRAMS]
    parser.add_argument("programs", nargs="*", metavar="program", help=f"of {', '.join(names)}; all by default")
    parser.add_argument(
        "--python", action="append", default=[], metavar="NAME=PATH", help="the interpreter of a program"
    )
    parser.add_argument("--rounds", type=positive, default=ROUNDS, help=f"processes that measure a step ({ROUNDS})")
    parser.add_argument("--epochs", type=positive, default=EPOCHS, help=f"epochs in each of them ({EPOCHS})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to a file")
    options = parser.parse_args(arguments)
    check_file_to_write(parser, "--json", options.json)
    if options.epochs < 2:
        parser.error("argument --epochs: must be at least 2: the first epoch isn't measured")
    given = {}
    for text in options.python:
        name, equals, path = text.partition("=")
        if not equals or not path or name not in names:
            parser.error(f"argument --python: must be NAME=PATH with a name of {', '.join(names)}, got {text}")
        given[name] = path
    options.python = given
    unknown = set(options.programs) - set(names)
    if unknown:
        parser.error(f"unknown programs: {', '.join(sorted(unknown))}")
    return options


def measure(programs: list[tuple[Program, str]], rounds: int, epochs: int) -> dict[str, dict[str, Any]]:
    """Measures programs: their steps in turns, then their kills.

    Args:
      programs: pairs of a program and its interpreter.
      rounds: processes that measure a step.
      epochs: epochs in each of them.

    Returns:
      The figures by title.
    """
    results: dict[str, dict[str, Any]] = {
        program.title: {
            "lines": code_lines(program.path.read_text()),
            "versions": versions_of(program, python),
            "step_secs": [],
        }
        for program, python in programs
    }
    for turn in range(rounds + 1):
        for program, python in programs:
            found = results[program.title]
            if "failed" in found:
                continue
            print(f"{program.name}: {'kills' if turn == rounds else f'round {turn + 1}'}", file=sys.stderr, flush=True)
            try:
                if turn < rounds:
                    found["step_secs"].append(step_secs(program, python, epochs))
                else:
                    found["kills"] = kills(program, python).as_json()
            except RuntimeError as error:
                found["failed"] = str(error).strip().splitlines()[-1]
                print(f"{program.name} has failed: {error}", file=sys.stderr)
    return results


def main(arguments: list[str] | None = None) -> int:
    """Runs the command. Returns the exit code: 1 if a program has failed."""
    options = parse_options(arguments)
    chosen = []
    for program in PROGRAMS:
        if options.programs and program.name not in options.programs:
            continue
        python = options.python.get(program.name, sys.executable)
        reason = is_installed(program, python)
        if reason is None:
            chosen.append((program, python))
        else:
            print(f"{program.name} is left out: {reason}", file=sys.stderr)
    results = measure(chosen, options.rounds, options.epochs)
    machine = report.machine()
    if options.json:
        options.json.write_text(json.dumps({"machine": machine, "trainers": results}, indent=1) + "\n")
    print(markdown(results))
    print(f"\n{machine['processor']}, {machine['cores']} cores; {machine['date'][:10]}.")
    return int(any("failed" in found for found in results.values()))


if __name__ == "__main__":
    sys.exit(main())
