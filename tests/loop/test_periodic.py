"""The intervals that all hooks of a loop share, and the values that they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fastsup.core.clock import steady
from fastsup.loop import (
    CheckpointHook,
    NanGuardHook,
    PeriodicHook,
    ProgressHook,
    StepLoop,
    StopWhenHook,
    SummaryHook,
    TimeLimitHook,
)

Stepping = Callable[..., Callable[[], Any]]


class Notes(PeriodicHook):
    def begin(self, loop: Any) -> None:
        self.steps: list[int] = []
        super().begin(loop)

    def act(self, loop: Any) -> None:
        self.steps.append(loop.global_step)


@pytest.mark.parametrize(
    ("every_steps", "every_secs", "expected"),
    [
        (1, None, list(range(101, 113))),
        (5, None, [105, 110]),
        (2.5, None, [102, 105, 108, 111]),
        (1e30, None, []),
        (None, 4, [104, 108, 112]),
        (5, 3, [103, 105, 108, 110]),
        (2, 3, [102, 104, 106, 108, 110, 112]),
        (float("inf"), None, []),
        (None, float("inf"), []),
    ],
)
def test_intervals(
    stepping: Stepping, every_steps: Any, every_secs: Any, expected: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    hook = Notes(every_steps, every_secs)
    StepLoop(stepping(), [hook], steps=12, initial_step=100).run()
    assert hook.steps == expected
    assert not caplog.messages


@pytest.mark.parametrize("hook", [Notes(every_secs=100), TimeLimitHook(100)])
def test_an_interval_is_as_long_as_it_says(hook: Any) -> None:
    """To the microsecond, by the clock that can't be set, however much the other one was adjusted."""
    loop = StepLoop(lambda: None, [])
    before = steady()
    hook.begin(loop)
    assert before + 100 <= hook.next_time <= steady() + 100


def test_a_hook_can_serve_a_second_loop() -> None:
    hook = Notes(4)
    StepLoop(int, [hook], max_steps=9).run()
    StepLoop(int, [hook], steps=9, initial_step=2).run()
    assert hook.steps == [4, 8]


def test_a_resumed_loop_acts_at_the_same_steps() -> None:
    hook = Notes(5)
    StepLoop(int, [hook], steps=12, initial_step=3).run()
    assert hook.steps == [5, 10, 15]
    StepLoop(int, [hook], steps=6, initial_step=5).run()
    assert hook.steps == [10]


def write(*_: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: PeriodicHook(), ValueError, "Either every_secs or every_steps should be provided"),
        (lambda: PeriodicHook(0), ValueError, "every_steps must be positive, got 0"),
        (lambda: PeriodicHook(every_secs=-1.0), ValueError, "every_secs must be positive, got -1.0"),
        (lambda: PeriodicHook("5"), TypeError, "every_steps must be a number, got '5'"),  # type: ignore[arg-type]
        (lambda: CheckpointHook(write), ValueError, "Either every_secs or every_steps should be provided"),
        (lambda: CheckpointHook(3, 1), TypeError, r"save must be a callable or have a method save.*got 3"),
        (lambda: SummaryHook(3), TypeError, "writer must be a writer of tf.summary.*got 3"),
        (lambda: SummaryHook(write, values="loss"), TypeError, "values must be a function.*got 'loss'"),  # type: ignore[arg-type]
        (lambda: NanGuardHook(every_steps=-2), ValueError, "every_steps must be positive, got -2"),
        (lambda: StopWhenHook(True), TypeError, "condition must be a function of the loop, got True"),  # type: ignore[arg-type]
        (lambda: TimeLimitHook(0), ValueError, "secs must be positive, got 0"),
        (lambda: ProgressHook(every_secs=0), ValueError, "every_secs must be positive, got 0"),
    ],
)
def test_bad_arguments(make: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_a_hook_that_does_nothing_is_an_error() -> None:
    class Forgetful(PeriodicHook):
        pass

    with pytest.raises(NotImplementedError, match=r"Forgetful must override act\(loop\)"):
        StepLoop(int, [Forgetful(2)], max_steps=5).run()
