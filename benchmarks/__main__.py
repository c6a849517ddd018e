"""Measures the cases and prints one table. Run it in the root of the repository.

    python -m benchmarks                          # all cases: four minutes
    python -m benchmarks --case sgd --rounds 20   # one case, thoroughly
    python -m benchmarks --memory                 # whether memory grows: ten minutes
    python -m benchmarks --programs               # whole programs, a process each: five minutes
    python -m benchmarks --peers                  # loops of other libraries: an hour, and gigabytes of packages once

Contenders take turns, so a disturbance of the machine hits all of them. Still, let the machine be idle.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from rich.console import Console

from benchmarks import memory, peer_environments, peer_table, report, whole_programs
from benchmarks.arguments import check_file_to_write, positive
from benchmarks.cases import CASES, Case
from benchmarks.contenders import leave_out_stale_steps
from benchmarks.measure import QUICK_SLICE_SECS, SLICE_SECS, alternate

ROUNDS, QUICK_ROUNDS, PEER_ROUNDS = 7, 3, 2
QUICK_HELP = "short slices and few rounds; with --programs a tenth of the steps, so that the start weighs more"
PEER_SECS, QUICK_PEER_SECS = 5.0, 0.5
OF_PEERS = {
    "--peer": list(dict.fromkeys(peer.adapter for peer in peer_environments.PEERS)),
    "--workload": list(peer_table.WORKLOADS),
}


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    """Parses the command line; None for `sys.argv`."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [case.name for case in CASES]
    parser.add_argument("--case", action="append", choices=names, metavar="NAME", help=f"only this: {', '.join(names)}")
    parser.add_argument("--rounds", type=positive, help=f"slices for each contender ({ROUNDS})")
    parser.add_argument("--quick", action="store_true", help=QUICK_HELP)
    parser.add_argument("--all", action="store_true", help="show every contender too")
    parser.add_argument("--memory", action="store_true", help="measure whether memory grows, instead of the cases")
    parser.add_argument("--programs", action="store_true", help="run whole programs, instead of the cases")
    parser.add_argument(
        "--reference", metavar="PYTHON", help="with --programs: interpreter that has TensorFlow 2.15, and its Estimator"
    )
    parser.add_argument("--peers", action="store_true", help="run the loops of other libraries, instead of the cases")
    parser.add_argument(
        "--environments",
        type=Path,
        metavar="DIR",
        help="with --peers: where the libraries are installed, if they aren't yet",
    )
    for argument, known in OF_PEERS.items():
        parser.add_argument(
            argument,
            action="append",
            default=[],
            choices=known,
            metavar="NAME",
            help=f"with --peers: only this: {', '.join(known)}",
        )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything to this file as well")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    options = parser.parse_args(arguments)
    if options.memory and options.case:
        parser.error("argument --memory: not with --case")
    if options.programs and (options.case or options.memory):
        parser.error("argument --programs: not with --case or --memory")
    if options.peers and (options.case or options.memory or options.programs):
        parser.error("argument --peers: not with --case, --memory or --programs")
    if not options.peers and (options.environments or options.peer or options.workload):
        parser.error("arguments --environments, --peer and --workload: only with --peers")
    if options.reference and not options.programs:
        parser.error("argument --reference: only with --programs")
    if options.reference and shutil.which(options.reference) is None:
        parser.error(f"argument --reference: there is no interpreter {options.reference}")
    check_file_to_write(parser, "--json", options.json)
    if options.peers:
        options.rounds = options.rounds or (1 if options.quick else PEER_ROUNDS)
    options.rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    return options


def measure(options: argparse.Namespace, console: Console) -> tuple[list[report.Line], report.Samples, dict[str, str]]:
    """Runs the cases. A case that fails is reported, and the others go on.

    Args:
      options: the parsed command line.
      console: where progress and errors are printed.

    Returns:
      The lines of the table, the samples in seconds per step, and the error messages by case.
    """
    chosen: list[Case] = [case for case in CASES if not options.case or case.name in options.case]
    slice_secs = QUICK_SLICE_SECS if options.quick else SLICE_SECS
    lines: list[report.Line] = []
    samples: report.Samples = {}
    errors: dict[str, str] = {}
    for number, case in enumerate(chosen, 1):
        with console.status(f"{number} of {len(chosen)}: {case.name}"):
            try:
                rounds = options.rounds * case.patience
                if case.measured is not None:
                    samples[case.name] = case.measured(rounds)
                else:
                    samples[case.name] = alternate(case.contenders, rounds, slice_secs)
            except Exception as error:
                console.print_exception()
                errors[case.name] = f"{type(error).__name__}: {error}"
                continue
        lines += report.lines_of(case, samples[case.name])
    return lines, samples, errors


def run_peers(options: argparse.Namespace, console: Console) -> int:
    """Runs the loops of other libraries. Returns the exit code: 1 if one that is installed has failed."""
    folder = options.environments or peer_environments.default_folder()
    with console.status(f"installing other libraries in {folder}"):
        peer_environments.install_peers(folder, options.peer)
    with console.status("running loops"):
        seconds = QUICK_PEER_SECS if options.quick else PEER_SECS
        runs, versions = peer_table.measure(folder, options.rounds, seconds, options.peer, options.workload)
    for table in peer_table.tables(runs):
        console.print(table)
    if options.json:
        results = {"machine": report.machine(), **peer_table.as_json(runs, versions)}
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return int(any(isinstance(felt, str) for peers in runs.values() for felt in peers.values()))


def main(arguments: list[str] | None = None) -> int:
    """Runs the command. Returns the exit code: 1 if a case failed or, with `--check`, if a target was missed."""
    options = parse_options(arguments)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 130)
    lines: list[report.Line] = []
    samples: report.Samples = {}
    errors: dict[str, str] = {}
    growths: list[memory.Growth] = []
    runs: whole_programs.Runs = {}
    if options.peers:
        return run_peers(options, console)
    if options.memory:
        with console.status("measuring memory"):
            growths.extend(memory.measurements())
        console.print(report.memory_table(growths))
    elif options.programs:
        with console.status("running programs"):
            runs = whole_programs.measure(options.rounds, options.quick, options.reference)
        console.print(whole_programs.programs_table(runs))
    else:
        lines, samples, errors = measure(options, console)
        console.print(report.results_table(lines))
        if options.all:
            console.print(report.contenders_table(samples))
    machine = report.machine()
    console.print(
        f"{machine['processor']}, {machine['cores']} cores, load {machine['load']:.1f}; Python {machine['python']}, "
        f"TensorFlow {machine['tensorflow']}, NumPy {machine['numpy']}, fastsup {machine['fastsup']}; {machine['date']}"
    )
    mean = report.geometric_mean(lines)
    if mean is not None:
        console.print(f"Geometric mean of the times faster: {mean:.2f} x")
    missed = [line.row.title for line in lines if line.missed] + [growth.title for growth in growths if growth.missed]
    if missed:
        console.print(f"Targets missed: {len(missed)}")
    for name, error in errors.items():
        console.print(f"[bold red]{name} failed[/]: {error}")
    if options.json:
        results = report.as_json(lines, samples, options.rounds, growths, errors)
        results["programs"] = whole_programs.as_json(runs)
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 1 if errors or (options.check and missed) else 0


if __name__ == "__main__":
    leave_out_stale_steps()
    sys.exit(main())
