"""The cases as groups of pytest-benchmark: `pytest benchmarks --benchmark-enable`.

pytest-benchmark runs one contender after the other, so what disturbs the machine may disturb one of them alone.
`python -m benchmarks`, where contenders take turns, is the fairer comparison. A round is a number of steps, the same
for all contenders of a case. Without `--benchmark-enable`, each contender does a few steps.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from benchmarks import pauses
from benchmarks.cases import CASES, Case
from benchmarks.measure import SLICE_SECS, steps_per_slice

ROUNDS = 7
BY_NAME = {case.name: case for case in CASES}


@cache
def steps_in_round(name: str) -> int:
    """How many steps of a case's first contender, mostly the slowest, fill a slice."""
    contender = next(iter(BY_NAME[name].contenders.values()))()
    try:
        return steps_per_slice(contender, SLICE_SECS)
    finally:
        contender.close()


def pairs() -> list[Any]:
    # The loops compile bare.c.
    marks = {"loop_python": pytest.mark.process, "loop_c": pytest.mark.process}
    return [
        pytest.param(case, name, id=f"{case.name}: {name}", marks=marks.get(case.name, ()))
        for case in CASES
        for name in case.contenders
    ]


@pytest.mark.timeout(600)
@pytest.mark.benchmark(disable_gc=True)
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("case", "contender"), pairs())
def test_step(benchmark: Any, case: Case, contender: str) -> None:
    steps = 5 if benchmark.disabled else steps_in_round(case.name)
    benchmark.group = f"{case.name}: {steps} steps"
    benchmark.extra_info["steps"] = steps
    made = case.contenders[contender]()
    try:
        if not benchmark.disabled:
            steps_per_slice(made, SLICE_SECS)  # Warms up: `executor="auto"` has chosen after this.
        benchmark.pedantic(made.steps, args=(steps,), rounds=ROUNDS * case.patience)
    finally:
        made.close()


@pytest.mark.filterwarnings("default")
def test_a_pause_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses, "SAVE_SECS", 0.1)
    for train, arguments in pauses.ARGUMENTS.values():
        assert 0 < pauses.longest_pause(train, arguments, megabytes=1) < 60
