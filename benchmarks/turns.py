"""Many combinations of fetches and feeds in turns: what a run costs once each has had its turn, against TensorFlow's.

    python -m benchmarks.turns                       # 1,000 combinations of each kind: ten minutes
    python -m benchmarks.turns --case cond --combinations 300
    python -m benchmarks.turns --check               # exit with 1 if a target is missed

Each case is measured twice: with room for all combinations, and with room for half of them. Contenders take turns. The
memory is that of the process, after the second round of all combinations and after the last one.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import tensorflow as tf
from rich.console import Console
from rich.table import Table

import fastsup.train
from fastsup.runtime import session as runtime_session

v1 = tf.compat.v1

# What a run may cost against TensorFlow's, and what the memory may grow by from the second round on, in MiB.
MOST_RATIO = 1.2
MOST_GROWTH = 8.0
PAGE = 4096

# A run: what is fetched, and what is fed.
Run = tuple[Any, Any]


class Result(NamedTuple):
    """What one case has shown."""

    case: str
    room: str
    tensorflow_micros: float
    micros: float
    ratio: float
    second_round_mib: float
    growth_mib: float

    def is_missed(self) -> bool:
        return self.ratio > MOST_RATIO or self.growth_mib > MOST_GROWTH


def subsets(tensors: Sequence[Any], count: int) -> list[list[Any]]:
    """Returns so many different subsets of a list, small ones first."""
    every = itertools.chain.from_iterable(itertools.combinations(tensors, size) for size in range(1, len(tensors) + 1))
    return [list(subset) for subset in itertools.islice(every, count)]


def fetches(count: int) -> list[Run]:
    """Sums of constants, some of them in each run."""
    tensors = [tf.constant(float(i)) + tf.constant(1.0) for i in range(12)]
    return [(subset, None) for subset in subsets(tensors, count)]


def variables(count: int) -> list[Run]:
    """Variables that are read one by one, or a few at a time."""
    reads = [v1.get_variable(f"v{i}", initializer=float(i), use_resource=True).read_value() for i in range(12)]
    return [(subset, None) for subset in subsets(reads, count)]


def feeds(count: int) -> list[Run]:
    """Six placeholders, fed in another order in each run, for some of twelve results."""
    placeholders = [v1.placeholder(tf.float32, []) for _ in range(6)]
    total = tf.add_n(placeholders)
    dice = random.Random(0)
    runs = []
    for subset in subsets([total + float(i) for i in range(12)], count):
        order = dice.sample(placeholders, len(placeholders))
        runs.append((subset, {placeholder: float(i) for i, placeholder in enumerate(order)}))
    return runs


def orders(count: int) -> list[Run]:
    """One result of six placeholders, fed in another order in each run."""
    placeholders = [v1.placeholder(tf.float32, []) for _ in range(6)]
    total = tf.add_n(placeholders)
    permutations = list(itertools.islice(itertools.permutations(placeholders), 720))
    random.Random(0).shuffle(permutations)
    return [(total, dict.fromkeys(permutations[i % 720], 1.0)) for i in range(count)]


def cond(count: int) -> list[Run]:
    """Conditionals of TensorFlow 2, some of them in each run."""
    x = v1.placeholder(tf.float32, [])
    tensors = [tf.cond(x > float(i), lambda i=i: x + float(i), lambda i=i: x - float(i)) for i in range(12)]
    return [(subset, {x: 5.5}) for subset in subsets(tensors, count)]


CASES: Mapping[str, Callable[[int], list[Run]]] = {
    "fetches": fetches,
    "variables": variables,
    "feeds": feeds,
    "orders": orders,
    "cond": cond,
}


@contextlib.contextmanager
def plain(package: Any) -> Iterator[Any]:
    """A Session of a package."""
    with package.Session() as session:
        session.run(v1.global_variables_initializer())
        yield session


@contextlib.contextmanager
def monitored(package: Any) -> Iterator[Any]:
    """A MonitoredSession of a package, with a hook that watches a value in each run."""
    hook = package.train.NanTensorHook(v1.get_default_graph().get_tensor_by_name("watched:0"))
    with package.train.MonitoredSession(hooks=[hook]) as session:
        yield session


SESSIONS: Mapping[str, Callable[[Any], Any]] = {"Session": plain, "MonitoredSession": monitored}
PACKAGES: Mapping[str, Any] = {"tf": v1, "fastsup": fastsup}


def resident_mib() -> float:
    """Returns the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE / 2**20


def round_secs(session: Any, runs: Sequence[Run]) -> float:
    """Runs every combination once. Returns the seconds for each run."""
    started = perf_counter()
    for fetched, fed in runs:
        session.run(fetched, fed)
    return (perf_counter() - started) / len(runs)


def measure(case: str, kind: str, count: int, rounds: int, max_bytes: int, room: str) -> tuple[Result, int]:
    """Measures one case. Returns the result, and an estimate of the bytes of what was compiled."""
    default = runtime_session._MAX_PLAN_BYTES
    runtime_session._MAX_PLAN_BYTES = max_bytes
    try:
        with contextlib.ExitStack() as stack:
            opened, runs = {}, {}
            for name, package in PACKAGES.items():
                with tf.Graph().as_default():
                    runs[name] = CASES[case](count)
                    tf.add(v1.train.get_or_create_global_step(), 0)
                    tf.constant(1.0, name="watched")
                    opened[name] = stack.enter_context(SESSIONS[kind](package))
            names = list(opened)
            for _ in range(2):
                for name in names:
                    round_secs(opened[name], runs[name])
            second = resident_mib()
            samples: dict[str, list[float]] = {name: [] for name in names}
            for _ in range(rounds):
                for name in names:
                    samples[name].append(round_secs(opened[name], runs[name]))
                names.reverse()
            growth = resident_mib() - second
            raw = opened["fastsup"].raw_session() if kind == "MonitoredSession" else opened["fastsup"]
            compiled = raw.plan_cache_info().bytes
    finally:
        runtime_session._MAX_PLAN_BYTES = default
    ratio = statistics.median(b / a for a, b in zip(samples["tf"], samples["fastsup"], strict=True))
    micros = {name: 1e6 * statistics.median(times) for name, times in samples.items()}
    result = Result(f"{case}, {kind}", room, micros["tf"], micros["fastsup"], ratio, second, growth)
    return result, compiled


def main() -> int:
    """Measures, and prints one table. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.turns", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", choices=CASES, help="only this")
    parser.add_argument("--session", choices=SESSIONS, help="only this")
    parser.add_argument("--combinations", type=int, default=1000, help="how many take turns (1000)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds after the first two (7)")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    arguments = parser.parse_args()
    table = Table(title=f"{arguments.combinations:,} combinations in turns: µs a run")
    for column in ("case", "room for", "TensorFlow", "fastsup", "ratio", "MiB, 2nd round", "MiB, growth"):
        table.add_column(column, justify="left" if column in ("case", "room for") else "right")
    missed = False
    for case in CASES if arguments.case is None else [arguments.case]:
        for kind in SESSIONS if arguments.session is None else [arguments.session]:
            max_bytes, room = runtime_session._MAX_PLAN_BYTES, "all"
            for _ in range(2):
                result, compiled = measure(case, kind, arguments.combinations, arguments.rounds, max_bytes, room)
                missed = missed or result.is_missed()
                table.add_row(
                    result.case, result.room, f"{result.tensorflow_micros:,.0f}", f"{result.micros:,.0f}",
                    f"{result.ratio:.2f}", f"{result.second_round_mib:,.0f}", f"{result.growth_mib:+.1f}",
                )  # fmt: skip
                print(*result, file=sys.stderr)
                max_bytes, room = compiled // 2, "half"
    Console(width=120).print(table)
    return int(missed and arguments.check)


if __name__ == "__main__":
    sys.exit(main())
