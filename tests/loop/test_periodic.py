"""The intervals that all hooks of a loop share, and the values that they refuse."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fastsup
from fastsup.core.clock import steady
from fastsup.loop import (
    CheckpointHook,
    Epochs,
    NanGuardHook,
    PeriodicHook,
    ProgressHook,
    StepLoop,
    StopWhenHook,
    SummaryHook,
    TimeLimitHook,
    every,
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
        (lambda: SummaryHook(3), TypeError, "writer must be a writer of fastsup.loop or .*got 3"),
        (lambda: SummaryHook(write, values="loss"), TypeError, "values must be a function.*got 'loss'"),  # type: ignore[arg-type]
        (lambda: NanGuardHook(every_steps=-2), ValueError, "every_steps must be positive, got -2"),
        (lambda: StopWhenHook(True), TypeError, "condition must be a function of the loop, got True"),  # type: ignore[arg-type]
        (
            lambda: StopWhenHook(lambda: True),  # type: ignore[misc, arg-type]
            TypeError,
            r"condition must be a function of the loop, got <function .*>: too many positional arguments\.$",
        ),
        (
            lambda: every(),
            ValueError,
            r"every requires at least one condition for the call\. Pass steps, secs, epochs, at_end or on_error",
        ),
        (lambda: every(True), TypeError, r"^steps must be a number, got True"),
        (lambda: every(0), ValueError, r"^steps must be positive, got 0"),
        (lambda: every("5"), TypeError, "^steps must be a number, got '5'"),  # type: ignore[arg-type]
        (lambda: every(secs=-1), ValueError, r"^secs must be positive, got -1"),
        (lambda: every(at_end=1), TypeError, "at_end must be True or False, got 1"),  # type: ignore[arg-type]
        (lambda: every(write), TypeError, r"^steps must be a number, got <function write .*Write @every\(steps=100\)"),  # type: ignore[arg-type]
        (lambda: every(5)(7), TypeError, "^function must be a function of the loop, got 7"),  # type: ignore[arg-type]
        (
            lambda: every(5)(lambda loop, value: None),  # type: ignore[misc, arg-type]
            TypeError,
            "^function must be a function of the loop, got <function .*>: missing a required argument: 'value'",
        ),
        (lambda: TimeLimitHook(0), ValueError, "secs must be positive, got 0"),
        (lambda: ProgressHook(every_secs=0), ValueError, "every_secs must be positive, got 0"),
    ],
)
def test_bad_arguments(make: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_an_init_that_leaves_out_that_of_its_base_is_named() -> None:
    class Mine(PeriodicHook):
        def __init__(self, name: str) -> None:
            self.name = name

        def act(self, loop: Any) -> None: ...

    class Stops(StopWhenHook):
        def __init__(self) -> None: ...

    class Own(Notes):
        def begin(self, loop: Any) -> None:
            super().begin(loop)
            self.missing  # type: ignore[attr-defined]

    for hook, base in ((Mine("x"), "PeriodicHook"), (Stops(), "StopWhenHook")):
        with pytest.raises(AttributeError) as raised:
            StepLoop(int, [hook]).run()
        place, note = raised.value.__notes__
        assert place == f"Raised by begin of the hook {hook!r}."
        assert note.startswith(
            f"Does {type(hook).__name__}.__init__ call super().__init__(...)? {base}.__init__, which"
        )
    own = Own(3)
    with pytest.raises(AttributeError, match="missing") as raised:
        StepLoop(int, [own]).run()
    assert raised.value.__notes__ == [f"Raised by begin of the hook {own!r}."]


def test_a_hook_from_a_function() -> None:
    steps: list[Any] = []

    @every(5)
    def note(loop: Any) -> str:
        """Notes the step."""
        steps.append((loop.global_step, loop.result))
        return "noted"

    StepLoop(iter(range(100)).__next__, [note], max_steps=12, initial_step=3).run()
    assert steps == [(5, 1), (10, 6)]
    assert isinstance(note, PeriodicHook)
    assert note.profile_name == "note"
    assert "<function test_a_hook_from_a_function.<locals>.note" in repr(note)
    assert note(StepLoop(int)) == "noted"


@pytest.mark.parametrize(
    ("arguments", "ends", "fails"),
    [
        ({"steps": 4}, [4, 8], [4, 8]),
        ({"steps": 4, "at_end": True}, [4, 8, 10], [4, 8]),
        ({"steps": 5, "at_end": True}, [5, 10], [5, 10]),
        ({"at_end": True}, [10], []),
        ({"on_error": True}, [], [10]),
        ({"steps": 5, "at_end": True, "on_error": True}, [5, 10], [5, 10, 10]),
        ({"secs": 4}, [4, 8], [4, 8]),
        ({"steps": 5, "secs": 4}, [4, 5, 9, 10], [4, 5, 9, 10]),
    ],
)
def test_when_the_function_is_called(
    stepping: Stepping, arguments: Any, ends: list[int], fails: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    class Fails(PeriodicHook):
        def act(self, loop: Any) -> None:
            raise ArithmeticError

    steps: list[int] = []
    hook = every(**arguments)(lambda loop: steps.append(loop.global_step))
    for _ in range(2):  # A hook serves another loop.
        StepLoop(stepping(), [hook], max_steps=10).run()
        assert steps == ends
        steps.clear()
    with pytest.raises(ArithmeticError):
        StepLoop(stepping(), [hook, Fails(10)]).run()
    assert steps == fails
    assert not caplog.messages


def test_a_hook_that_does_nothing_is_an_error() -> None:
    class Forgetful(PeriodicHook):
        pass

    with pytest.raises(NotImplementedError, match=r"Forgetful must override act\(loop\)"):
        StepLoop(int, [Forgetful(2)], max_steps=5).run()


# Epochs.


def batches(position: int = 0) -> fastsup.ArrayBatches:
    """Seven batches an epoch."""
    found = fastsup.ArrayBatches(np.arange(20), 3, epochs=None)
    found.position = position
    return found


@pytest.mark.parametrize(
    ("epochs", "position", "first_step", "due"),
    [
        (1, 0, 0, [7, 14, 21]),
        (2, 0, 0, [14]),
        (1, 3, 0, [4, 11, 18]),
        (1, 10, 10, [14, 21, 28]),
        (1.5, 7, 100, [107, 121]),
    ],
)
def test_due_at_the_end_of_epochs(epochs: float, position: int, first_step: int, due: list[int]) -> None:
    seen: list[int] = []
    hook = every(epochs=epochs)(lambda loop: seen.append(loop.global_step))  # type: ignore[arg-type]
    step = fastsup.bind_batches(lambda batch: None, batches(position))
    StepLoop(step, [hook], initial_step=first_step, steps=21).run()
    assert seen == due


def test_epochs_with_steps() -> None:
    seen: list[int] = []
    hook = PeriodicHook(every_steps=5, every_epochs=1)
    hook.act = lambda loop: seen.append(loop.global_step)  # type: ignore[method-assign]
    StepLoop(fastsup.bind_batches(lambda batch: None, batches()), [hook], steps=15).run()
    assert seen == [5, 7, 10, 14, 15]


def test_epochs_of_steps_in_one_compiled_call() -> None:
    import tensorflow as tf

    @fastsup.function(jit_compile=True)
    def step(batch: Any) -> Any:
        return tf.reduce_sum(batch)

    seen: list[int] = []
    data = fastsup.ArrayBatches(np.arange(21), 3, epochs=4)
    hook = every(epochs=1)(lambda loop: seen.append(loop.global_step))
    loop = StepLoop(fastsup.bind_batches(step, data), [hook], fuse="always")
    loop.run()
    assert seen == [7, 14, 21, 28]
    assert loop.fused


def test_epochs_need_batches_that_know_them() -> None:
    loop = StepLoop(int, [every(epochs=1)(print)], max_steps=3)
    with pytest.raises(ValueError, match=r"1 epochs requires a step .*fastsup.bind_batches\(step, batches\)"):
        loop.run()
    assert loop.steps == 0
    with pytest.raises(ValueError, match="epochs must be positive"):
        every(epochs=0)


def test_epochs_of_any_data_in_a_loop() -> None:
    """`bind_batches` takes what `Epochs` takes; a batch that is a list gives its parts."""
    seen: list[Any] = []
    steps = fastsup.bind_batches(lambda scale, x, y: scale * (x + y), Epochs([[1, 2], (3, 4)], 3), 10)
    hook = every(epochs=1)(lambda loop: seen.append((loop.global_step, loop.result)))
    assert StepLoop(steps, [hook]).run() == 70
    assert seen == [(2, 70), (4, 70), (6, 70)]


def test_progress_shows_the_epoch() -> None:
    text = io.StringIO()
    StepLoop(fastsup.bind_batches(lambda batch: 0.5, batches()), [ProgressHook(file=text)], steps=10).run()
    assert "epoch 1.43, loss 0.5" in text.getvalue()
