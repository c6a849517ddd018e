"""The cases as groups of pytest-benchmark: `pytest benchmarks --benchmark-enable`.

pytest-benchmark runs one benchmark after the other. So a case is measured once, its contenders in turn as always, and
each of its benchmarks plays back what was measured for its contender, on a clock of its own.
Without `--benchmark-enable`, each contender does a few steps.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from benchmarks import pauses
from benchmarks.cases import CASES, Case
from benchmarks.measure import alternate

ROUNDS = 7
BY_NAME = {case.name: case for case in CASES}


class Playback:
    """A clock that advances by what was measured."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds


clock = Playback()


@cache
def measured(name: str) -> dict[str, list[float]]:
    case = BY_NAME[name]
    return alternate(case.contenders, ROUNDS * case.patience)


def pairs() -> list[Any]:
    return [pytest.param(case, name, id=f"{case.name}: {name}") for case in CASES for name in case.contenders]


@pytest.mark.timeout(600)
@pytest.mark.benchmark(timer=clock)
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("case", "contender"), pairs())
def test_step(benchmark: Any, case: Case, contender: str) -> None:
    benchmark.group = case.name
    if benchmark.disabled:
        made = case.contenders[contender]()
        benchmark.pedantic(made.steps, args=(5,))
        made.close()
        return
    samples = measured(case.name)[contender]
    to_play = iter(samples)
    benchmark.pedantic(clock.advance, setup=lambda: ((next(to_play),), {}), rounds=len(samples))


@pytest.mark.filterwarnings("default")
def test_a_pause_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses, "SAVE_SECS", 0.1)
    for train, arguments in pauses.ARGUMENTS.values():
        assert 0 < pauses.longest_pause(train, arguments, megabytes=1) < 60
