"""SecondOrStepTimer: when it triggers, what it measures, and how often it looks at the clock."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


def test_needs_exactly_one_interval(impl: Any) -> None:
    with pytest.raises(ValueError, match=r"^Either every_secs or every_steps should be provided\."):
        impl.train.SecondOrStepTimer()
    with pytest.raises(ValueError, match=r"^Can not provide both every_secs and every_steps\."):
        impl.train.SecondOrStepTimer(every_secs=2.0, every_steps=10)
    with pytest.raises(ValueError, match=r"^Can not provide both every_secs and every_steps\."):
        impl.train.SecondOrStepTimer(2.0, 10)


def test_every_steps(impl: Any, clock: Any) -> None:
    timer = impl.train.SecondOrStepTimer(every_steps=3)
    assert timer.last_triggered_step() is None
    assert timer.should_trigger_for_step(1)
    assert timer.should_trigger_for_step(1)  # Asking changes nothing.
    timer.update_last_triggered_step(1)
    assert timer.last_triggered_step() == 1
    assert [timer.should_trigger_for_step(step) for step in (1, 2, 3, 4, 5)] == [False, False, False, True, True]
    clock.now += 1e6
    assert not timer.should_trigger_for_step(3)


@pytest.mark.parametrize("never", [math.inf, 10**30])
def test_after_steps_that_never_come(impl: Any, never: Any) -> None:
    timer = impl.train.SecondOrStepTimer(every_steps=never)
    assert timer.should_trigger_for_step(5)
    timer.update_last_triggered_step(5)
    assert [timer.should_trigger_for_step(step) for step in (5, 6, 2**62)] == [False, False, False]


def test_every_secs(impl: Any, clock: Any) -> None:
    timer = impl.train.SecondOrStepTimer(every_secs=1.0)
    assert timer.should_trigger_for_step(1)
    timer.update_last_triggered_step(1)
    assert not timer.should_trigger_for_step(2)
    clock.now += 0.5
    assert not timer.should_trigger_for_step(10**9)
    clock.now += 0.5
    assert timer.should_trigger_for_step(2)
    assert timer.should_trigger_for_step(0)
    assert not timer.should_trigger_for_step(1)  # Never twice for one step, however long it takes.


def test_seconds_may_be_a_fraction_or_whole(impl: Any, clock: Any) -> None:
    for every in (0.25, 2):
        timer = impl.train.SecondOrStepTimer(every_secs=every)
        timer.update_last_triggered_step(0)
        clock.now += every
        assert timer.should_trigger_for_step(1)
        timer.update_last_triggered_step(1)
        clock.now += every / 2
        assert not timer.should_trigger_for_step(2)


def test_update_tells_what_has_elapsed(impl: Any, clock: Any) -> None:
    timer = impl.train.SecondOrStepTimer(every_steps=1)
    assert timer.update_last_triggered_step(1) == (None, None)
    clock.now += 2.5
    assert timer.update_last_triggered_step(5) == (2.5, 4)
    assert timer.update_last_triggered_step(5) == (0.0, 0)
    clock.now += 1
    assert timer.update_last_triggered_step(3) == (1.0, -2)
    clock.now -= 5
    assert timer.update_last_triggered_step(4) == (-5.0, 1)


def test_reset_forgets(impl: Any, clock: Any) -> None:
    timer = impl.train.SecondOrStepTimer(every_steps=10)
    timer.update_last_triggered_step(5)
    timer.reset()
    assert timer.last_triggered_step() is None
    assert timer.should_trigger_for_step(5)
    assert timer.update_last_triggered_step(6) == (None, None)


def test_a_second_init_begins_anew(impl: Any, clock: Any) -> None:
    timer = impl.train.SecondOrStepTimer(every_steps=10)
    timer.update_last_triggered_step(5)
    timer.__init__(every_steps=10)
    assert timer.last_triggered_step() is None
    assert timer.should_trigger_for_step(5)
    assert timer.update_last_triggered_step(6) == (None, None)


def test_reads_of_the_clock(impl: Any, clock: Any) -> None:
    """One read an update, one a question that needs the time, none else: programs replace `time.time` and count."""

    def reads(function: Any, *args: Any) -> int:
        before = clock.reads
        function(*args)
        return clock.reads - before

    for arguments, question in (({"every_steps": 2}, 0), ({"every_secs": 2}, 1)):
        assert reads(lambda arguments=arguments: impl.train.SecondOrStepTimer(**arguments)) == 0
        timer = impl.train.SecondOrStepTimer(**arguments)
        assert reads(timer.should_trigger_for_step, 1) == 0
        assert reads(timer.update_last_triggered_step, 1) == 1
        assert reads(timer.should_trigger_for_step, 1) == 0
        assert reads(timer.should_trigger_for_step, 2) == question
        assert reads(timer.last_triggered_step) == 0
        assert reads(timer.reset) == 0


def test_clock_is_looked_up_when_it_is_read(impl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    timer = impl.train.SecondOrStepTimer(every_secs=10)
    for now in (100.0, 105.0):
        monkeypatch.setattr("time.time", lambda now=now: now)
        last = timer.update_last_triggered_step(int(now))
    assert last == (5.0, 5)


def test_private_names(impl: Any, clock: Any) -> None:
    """Subclasses read and set these."""
    timer = impl.train.SecondOrStepTimer(every_steps=3)
    assert (timer._every_secs, timer._every_steps) == (None, 3)
    assert (timer._last_triggered_step, timer._last_triggered_time) == (None, None)
    timer.update_last_triggered_step(4)
    assert (timer._last_triggered_step, timer._last_triggered_time) == (4, clock.now)
    timer._every_steps = 5
    assert [timer.should_trigger_for_step(step) for step in (7, 8, 9)] == [False, False, True]
    timer._last_triggered_step = 1
    assert [timer.should_trigger_for_step(step) for step in (5, 6)] == [False, True]
    timer._last_triggered_time = clock.now - 8
    assert timer.update_last_triggered_step(6) == (8.0, 5)


def test_numpy_steps(impl: Any, clock: Any) -> None:
    """Hooks pass what a session's run gives them."""
    import numpy as np

    timer = impl.train.SecondOrStepTimer(every_steps=2)
    assert timer.should_trigger_for_step(np.int64(1))
    timer.update_last_triggered_step(np.int64(1))
    assert not timer.should_trigger_for_step(np.int64(2))
    assert timer.should_trigger_for_step(np.int64(3))
    clock.now += 1
    assert timer.update_last_triggered_step(np.int64(3)) == (1.0, 2)
    assert timer.last_triggered_step() == 3


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["should_trigger_for_step", "update_last_triggered_step", "last_triggered_step", "reset"]),
        st.integers(-3, 12),
        st.sampled_from([0.0, 0.5, 1.0, 2.0, -1.0]),
    ),
    max_size=30,
)


@settings(
    deadline=None, derandomize=True, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(every=st.one_of(st.integers(1, 4), st.sampled_from([0.5, 1.5])), in_seconds=st.booleans(), actions=ACTIONS)
def test_any_sequence_of_calls(both: Any, clock: Any, every: float, in_seconds: bool, actions: Any) -> None:
    told: list[Any] = []
    start = clock.now
    for impl in (both.tensorflow, both.fastsup):
        clock.now = start
        timer = impl.train.SecondOrStepTimer(**{"every_secs" if in_seconds else "every_steps": every})
        answers = []
        for name, step, passing in actions:
            clock.now += passing
            before = clock.reads
            answer = (
                getattr(timer, name)(step) if name.endswith("for_step") or "update" in name else getattr(timer, name)()
            )
            answers.append((answer, clock.reads - before))
        told.append(answers)
    assert told[0] == told[1]
