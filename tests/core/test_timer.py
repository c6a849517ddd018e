"""The arguments that the timer refuses, and its attributes. Differential tests compare the rest with TensorFlow's."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from fastsup.core import SecondOrStepTimer


@pytest.mark.parametrize("name", ["every_secs", "every_steps"])
@pytest.mark.parametrize("value", [0, -1, -0.5, np.int64(0), -float("inf")])
def test_an_interval_of_0_or_less_triggers_at_each_new_step(name: str, value: Any) -> None:
    timer = SecondOrStepTimer(**{name: value})
    timer.update_last_triggered_step(5)
    assert [timer.should_trigger_for_step(step) for step in (5, 6, 7)] == [False, True, True]
    assert getattr(timer, f"_{name}") is value


def test_after_a_step_that_was_before_the_last_one() -> None:
    """Seconds pass whatever the step does; steps don't."""
    for name, triggers in (("every_secs", True), ("every_steps", False)):
        timer = SecondOrStepTimer(**{name: 0})
        timer.update_last_triggered_step(5)
        assert timer.should_trigger_for_step(4) is triggers


@pytest.mark.parametrize("name", ["every_secs", "every_steps"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), np.float32("nan")])
def test_an_interval_that_never_ends_triggers_once(name: str, value: Any) -> None:
    timer = SecondOrStepTimer(**{name: value})
    assert timer.should_trigger_for_step(5)
    timer.update_last_triggered_step(5)
    assert [timer.should_trigger_for_step(step) for step in (5, 6, 2**62)] == [False, False, False]


@pytest.mark.parametrize("name", ["every_secs", "every_steps"])
@pytest.mark.parametrize("value", ["10", [], object()])
def test_refuses_intervals_that_are_no_numbers(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"{name} must be a number, got"):
        SecondOrStepTimer(**{name: value})


def test_steps_far_out_do_not_overflow() -> None:
    timer = SecondOrStepTimer(every_steps=2**62)
    timer.update_last_triggered_step(2**62)
    assert not timer.should_trigger_for_step(2**63 - 1)
    timer.update_last_triggered_step(-(2**62))
    assert timer.should_trigger_for_step(0)


def test_takes_numpy_steps_and_gives_back_what_it_got() -> None:
    timer = SecondOrStepTimer(every_steps=np.int32(3))
    timer.update_last_triggered_step(np.int64(5))
    assert type(timer.last_triggered_step()) is np.int64
    assert not timer.should_trigger_for_step(np.int64(7))
    assert timer.should_trigger_for_step(np.array(8))
    _, elapsed = timer.update_last_triggered_step(np.int64(9))
    assert type(elapsed) is np.int64
    assert elapsed == 4


def test_attributes_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = SecondOrStepTimer(every_steps=10)
    timer._last_triggered_step, timer._last_triggered_time = 100, 50.0
    assert not timer.should_trigger_for_step(109)
    timer._every_steps = 5
    assert timer.should_trigger_for_step(105)
    timer._every_steps = 0
    assert timer.should_trigger_for_step(101)
    timer._every_steps, timer._every_secs = None, 2.0
    monkeypatch.setattr(time, "time", lambda: 51.9)
    assert not timer.should_trigger_for_step(105)
    monkeypatch.setattr(time, "time", lambda: 52.0)
    assert timer.should_trigger_for_step(105)
