"""Training loops of other libraries, each in its environment and a fresh process: speed, start, end and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from benchmarks.peer_environments import PEERS, Peer, python_of
from benchmarks.whole_programs import medians

__all__ = ["Felt", "as_json", "from_json", "measure", "medians_of", "rows_of", "tables"]

WORKER = Path(__file__).with_name("adapters") / "worker.py"
WORKLOADS = {
    "tiny": "ten numbers, gradient descent",
    "digits": "images of 8 x 8, a hidden layer, batches of 32",
    "wide_and_deep": "four embeddings and eight numbers, batches of 128, Adagrad",
    "one_ms": "8 products of 256 x 256 matrices",
    "twenty_ms": "160 products of 256 x 256 matrices",
}
# The same in one or two words.
SHORT = {
    "tiny": "ten numbers",
    "digits": "digits",
    "wide_and_deep": "wide and deep",
    "one_ms": "8 products",
    "twenty_ms": "160 products",
}
LIMIT_SECS = 600


@dataclass(frozen=True)
class Felt:
    """The figures of one run of one peer.

    Args:
      step_secs: seconds of a step, the median of slices.
      slow_step_secs: the same of the slowest of ten slices.
      first_step_secs: seconds from the start of the process to the end of the first step.
      import_secs: those of them up to the end of the imports.
      end_secs: seconds from the end of the last step to the exit of the process.
      peak_mb: largest resident memory of the process, in millions of bytes.
    """

    step_secs: float
    slow_step_secs: float
    first_step_secs: float
    import_secs: float
    end_secs: float
    peak_mb: float


# The runs by workload and by the title of the peer. A text is the reason why there are none.
Runs = dict[str, dict[str, "list[Felt] | str"]]


def run_once(peer: Peer, workload: str, seconds: float, python: str) -> tuple[Felt, dict[str, str]]:
    """Runs a peer in a fresh process.

    Args:
      peer: the peer.
      workload: what it trains.
      seconds: how long it is measured.
      python: the interpreter of its environment.

    Returns:
      Its figures, and the versions in its environment.

    Raises:
      RuntimeError: the process has failed, or hasn't ended in ten minutes. The message has its last line.
    """
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **peer.settings}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path)) if python == sys.executable else ""
    command = [python, str(WORKER), peer.adapter, workload, str(seconds)]
    started = time.time()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        output, errors = process.communicate(timeout=LIMIT_SECS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise RuntimeError(f"no end after {LIMIT_SECS} seconds") from None
    exited = time.time()
    if process.returncode != 0:
        raise RuntimeError(([*errors.strip().splitlines(), f"exit code {process.returncode}"])[-1])
    found = json.loads(output.splitlines()[-1])
    steps = [secs / count for count, secs in found["slices"]]
    felt = Felt(
        step_secs=median(steps),
        slow_step_secs=max(steps),
        first_step_secs=found["started"] - started + found["import_secs"] + found["first_step_secs"],
        import_secs=found["started"] - started + found["import_secs"],
        end_secs=exited - found["last"],
        peak_mb=found["peak_mb"],
    )
    return felt, found["versions"]


def measure(
    folder: Path, rounds: int, seconds: float, peers: Iterable[str] = (), workloads: Iterable[str] = ()
) -> tuple[Runs, dict[str, dict[str, str]]]:
    """Runs all peers in turns.

    Args:
      folder: where the environments lie.
      rounds: runs of each peer and workload.
      seconds: how long each run is measured.
      peers: adapters to run; all if there is none.
      workloads: workloads to run; all if there is none.

    Returns:
      The runs, and the versions by environment.
    """
    chosen = [peer for peer in PEERS if not peers or peer.adapter in set(peers)]
    runs: Runs = {}
    versions: dict[str, dict[str, str]] = {}
    for workload in workloads or WORKLOADS:
        of_it: dict[str, list[Felt] | str] = {}
        runs[workload] = of_it
        for _ in range(rounds):
            for peer in chosen:
                python = python_of(peer.environment, folder)
                known = of_it.setdefault(peer.title, [])
                if python is None:
                    of_it[peer.title] = "not installed"
                if python is None or isinstance(known, str):
                    continue
                try:
                    felt, versions[peer.environment] = run_once(peer, workload, seconds, python)
                except RuntimeError as error:
                    of_it[peer.title] = str(error)
                    continue
                known.append(felt)
    return runs, versions


HEADINGS = (
    "µs per step",
    "slowest slice",
    "against the fastest",
    "imports, s",
    "first step, s",
    "end, s",
    "memory, MB",
)


def medians_of(peers: dict[str, list[Felt] | str]) -> dict[str, Felt]:
    """The median of each figure, by the title of the peer; without those that have no figures."""
    return {title: medians(felt) for title, felt in peers.items() if isinstance(felt, list) and felt}


def rows_of(peers: dict[str, list[Felt] | str]) -> list[list[str]]:
    """The rows of one workload, the fastest first, and those without figures last."""
    measured = medians_of(peers)
    fastest = min((felt.step_secs for felt in measured.values()), default=1.0)
    rows = [
        [
            title,
            f"{1e6 * felt.step_secs:,.3g}" if felt.step_secs < 1e-3 else f"{1e6 * felt.step_secs:,.0f}",
            f"{1e6 * felt.slow_step_secs:,.3g}" if felt.slow_step_secs < 1e-3 else f"{1e6 * felt.slow_step_secs:,.0f}",
            f"{felt.step_secs / fastest:,.1f} x",
            f"{felt.import_secs:.1f}",
            f"{felt.first_step_secs:.1f}",
            f"{felt.end_secs:.1f}",
            f"{felt.peak_mb:,.0f}",
        ]
        for title, felt in sorted(measured.items(), key=lambda item: item[1].step_secs)
    ]
    absent = [[title, why, *[""] * (len(HEADINGS) - 1)] for title, why in peers.items() if isinstance(why, str)]
    return rows + absent


def tables(runs: Runs) -> list[Table]:
    """A table for each workload."""
    made = []
    for workload, peers in runs.items():
        table = Table(title=f"{workload}: {WORKLOADS[workload]}", title_justify="left")
        table.add_column("loop")
        for heading in HEADINGS:
            table.add_column(heading, justify="right")
        for row in rows_of(peers):
            table.add_row(*row)
        made.append(table)
    return made


def as_json(runs: Runs, versions: dict[str, dict[str, str]]) -> dict[str, Any]:
    """Everything that was measured."""
    listed = {
        workload: {
            title: felt if isinstance(felt, str) else [asdict(run) for run in felt] for title, felt in of_it.items()
        }
        for workload, of_it in runs.items()
    }
    return {"runs": listed, "versions": versions}


def from_json(results: dict[str, Any]) -> Runs:
    """The runs in what `as_json` has made."""
    return {
        workload: {
            title: felt if isinstance(felt, str) else [Felt(**run) for run in felt] for title, felt in of_it.items()
        }
        for workload, of_it in results["runs"].items()
    }
