"""NanGuardHook ends a loop that has diverged."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from fastsup.loop import CheckpointHook, NanGuardHook, NanResultError, StepLoop

NAN = float("nan")


@pytest.mark.parametrize(
    ("results", "name"),
    [
        ([1.0, 2.0, NAN], "loss"),
        ([np.float32(1), np.float32(2), np.float32("nan")], "loss"),
        ([np.ones(1), np.ones(1), np.full(1, NAN)[0]], "loss"),
        ([{"loss": 1.0, "norm": 2}, {"loss": 1.0, "norm": 2}, {"loss": 1.0, "norm": NAN}], "norm"),
    ],
)
def test_fails_at_the_step(results: list[Any], name: str) -> None:
    loop = StepLoop(iter(results).__next__, [NanGuardHook(values=lambda r: r[0] if np.ndim(r) else r)])
    with pytest.raises(NanResultError, match=f"(?m)^NaN in the result of step 3: {name}$"):
        loop.run()


def test_what_float_does_not_take_as_it_is() -> None:
    """A number that is too large; and a tensor of PyTorch's that is to have a gradient, which warns."""

    class WithGradient:
        def __float__(self) -> float:
            raise AssertionError("Converting a tensor with requires_grad=True to a scalar")

        def detach(self) -> float:
            return NAN

    results = iter([10**400, -(10**400), WithGradient()])
    with pytest.raises(NanResultError, match="step 3"):
        StepLoop(results.__next__, [NanGuardHook(every_steps=1)]).run()


def test_infinity_is_no_nan() -> None:
    loop = StepLoop(iter([float("inf"), -float("inf")]).__next__, [NanGuardHook()])
    loop.run()
    assert loop.steps == 2


def test_stops_instead(caplog: pytest.LogCaptureFixture) -> None:
    loop = StepLoop(iter([1.0, NAN, 1.0]).__next__, [NanGuardHook(fail_on_nan=False)])
    with caplog.at_level(logging.WARNING, logger="fastsup"):
        loop.run()
    assert loop.steps == 2
    assert caplog.messages == ["NaN in the result of step 2: loss"]


def test_looks_at_intervals() -> None:
    loop = StepLoop(iter([NAN, 1.0, NAN, NAN]).__next__, [NanGuardHook(every_steps=2)])
    with pytest.raises(NanResultError, match="step 4"):
        loop.run()


def test_looks_at_the_last_result_when_the_loop_ends(caplog: pytest.LogCaptureFixture) -> None:
    saved: list[int] = []
    hooks = [NanGuardHook(every_steps=10), CheckpointHook(saved.append, every_steps=10)]
    with pytest.raises(NanResultError, match=r"^NaN in the result of step 3: loss\nRaised by end of"):
        StepLoop(iter([1.0, NAN, NAN]).__next__, hooks).run()
    assert saved == [3]  # The last checkpoint is saved, whatever the end of another hook raises.
    with caplog.at_level(logging.WARNING, logger="fastsup"):
        StepLoop(iter([1.0, NAN]).__next__, [NanGuardHook(fail_on_nan=False, every_steps=2)]).run()
        StepLoop(iter([1.0, NAN, NAN]).__next__, [NanGuardHook(fail_on_nan=False, every_steps=2)]).run()
    assert caplog.messages == ["NaN in the result of step 2: loss"] * 2


@pytest.mark.parametrize("every_steps", [1, 2, float("inf")])
def test_a_loop_without_a_step_has_no_result(every_steps: float) -> None:
    hook = NanGuardHook(every_steps=every_steps)  # type: ignore[arg-type]
    assert StepLoop(iter([]).__next__, [hook]).run() is None


def test_before_a_checkpoint_it_keeps_nan_out_of_it() -> None:
    saved: list[int] = []
    hooks = [NanGuardHook(), CheckpointHook(saved.append, every_steps=1)]
    with pytest.raises(NanResultError):
        StepLoop(iter([1.0, 1.0, NAN]).__next__, hooks).run()
    assert saved == [1, 2]


def test_a_result_without_numbers_is_refused() -> None:
    with pytest.raises(TypeError, match=r"must return a number or a mapping .* loss: None"):
        StepLoop(lambda: None, [NanGuardHook()], max_steps=1).run()


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError, match=r"^fail_on_nan must be True or False, got 'no'"):
        NanGuardHook(fail_on_nan="no")  # type: ignore[arg-type]
    for every_steps in (0, -1):
        with pytest.raises(
            ValueError, match=rf"^every_steps must be positive, got {every_steps}\. Pass a positive number\.$"
        ):
            NanGuardHook(every_steps=every_steps)
