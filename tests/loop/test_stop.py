"""Ends of a loop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fastsup.loop import StepLoop, StopAtStepHook, StopWhenHook, TimeLimitHook

Stepping = Callable[..., Callable[[], Any]]


@pytest.mark.parametrize(("initial_step", "steps"), [(0, 7), (5, 2), (7, 0), (9, 0)])
def test_stops_at_a_global_step(initial_step: int, steps: int) -> None:
    loop = StepLoop(int, [StopAtStepHook(np.int64(7))], max_steps=100, initial_step=initial_step)
    loop.run()
    assert loop.steps == steps


def test_a_last_step_that_is_never_reached() -> None:
    loop = StepLoop(int, [StopAtStepHook(2**70)], max_steps=3)
    loop.run()
    assert loop.steps == 3


def test_a_last_step_is_an_integer() -> None:
    with pytest.raises(TypeError, match=r"last_step must be an integer, got 2\.5"):
        StopAtStepHook(2.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["last_step", "num_steps"])
def test_a_last_step_is_not_negative(name: str) -> None:
    arguments: Any = {name: -3}
    with pytest.raises(ValueError, match=rf"^{name} must not be negative, got -3\. "):
        StopAtStepHook(**arguments)
    with pytest.raises(TypeError, match=f"^{name} must be an integer, got True"):
        StopAtStepHook(**{name: True})


def test_the_log_says_that_there_is_no_step_to_run(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "fastsup"):
        StepLoop(int, [StopAtStepHook(7)], initial_step=9).run()
    assert caplog.messages == [
        "Skipping training: the global step is already 9, and StopAtStepHook ends the loop at 7."
    ]


def test_stops_after_a_time(stepping: Stepping) -> None:
    loop = StepLoop(stepping(secs=2.0), [TimeLimitHook(5)], max_steps=100)
    loop.run()
    assert loop.steps == 3


def test_stops_when_a_condition_holds(stepping: Stepping) -> None:
    loop = StepLoop(stepping(results=[5.0, 3.0, 0.5, 0.1]), [StopWhenHook(lambda loop: loop.result < 1)])
    assert loop.run() == 0.5


def test_looks_at_the_condition_at_intervals(stepping: Stepping) -> None:
    seen: list[int] = []
    hook = StopWhenHook(lambda loop: seen.append(loop.global_step), every_secs=3.0)
    StepLoop(stepping(), [hook], max_steps=10).run()
    assert seen == [3, 6, 9]
