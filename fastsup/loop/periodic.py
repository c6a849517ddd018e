"""Hooks that act at intervals: the base class, and a hook made from a function; and hooks that stop a loop."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from typing import Any

from fastsup.core import Hook
from fastsup.core.checks import check_flag, check_interval, check_takes, suggest_keywords
from fastsup.core.clock import steady
from fastsup.core.schedule import Scheduled

_logger = logging.getLogger("fastsup")


def due_in(hook: Hook, secs: float) -> None:
    """Makes a hook due after a number of seconds.

    `due_at_time` takes a time of day. Converting to it would lengthen each interval by the clock's adjustments since
    the process started.
    """
    Scheduled.due_at_time(hook, steady() + secs)


class PeriodicHook(Hook):
    """Calls `act` at intervals. Subclasses override `act`.

    A resumed loop calls `act` at the same global steps as a loop that was never interrupted.

    Args:
      every_steps: `act` is called at the global steps that are multiples of this number, or None. A fraction is
        rounded up.
      every_secs: seconds between calls, counted from the loop's start, or None. Of several intervals, the one that
        passes first counts.
      every_epochs: `act` is called after the last step of each epoch whose number is a multiple of this number, or
        None. Requires batches with epochs: from `fastsup.bind_batches` with a `fastsup.loop.Epochs` or a
        `fastsup.ArrayBatches`, or from `fastsup.loop.train`.

    Raises:
      ValueError: If an interval isn't positive, or none is given.
      TypeError: If an interval isn't a number.
    """

    def __init__(
        self, every_steps: int | None = None, every_secs: float | None = None, every_epochs: int | None = None
    ) -> None:
        if every_steps is None and every_secs is None and every_epochs is None:
            raise ValueError("Either every_secs or every_steps should be provided.")
        intervals = {"every_steps": every_steps, "every_secs": every_secs, "every_epochs": every_epochs}
        for name, interval in intervals.items():
            if interval is not None:
                check_interval(name, interval)
        self.every_steps = every_steps
        self.every_secs: float | None = every_secs
        self.every_epochs = every_epochs
        # The number of steps in this many epochs, and the global step at which the first epoch started.
        self._epoch_steps, self._first_step = 0, 0

    def act(self, loop: Any) -> None:
        """Runs when the hook is due.

        Args:
          loop: the `StepLoop`, for `loop.global_step`, `loop.result` and `loop.request_stop()`.

        Raises:
          NotImplementedError: If the subclass doesn't override this method.
        """
        raise NotImplementedError(f"{type(self).__name__} must override act(loop): otherwise the hook does nothing.")

    def begin(self, loop: Any) -> None:
        self.never_due()
        self._find_epochs(loop)
        self._wait(loop)

    def after_step(self, loop: Any, value: Any) -> None:
        self.act(loop)
        self._wait(loop)

    def _find_epochs(self, loop: Any) -> None:
        if self.every_epochs is None:
            return
        batches: Any = getattr(loop, "batches", None)
        length = getattr(batches, "batches_per_epoch", None)
        if length is None:
            raise ValueError(
                f"An interval of {self.every_epochs!r} epochs requires a step whose batches have epochs. Pass "
                "fastsup.bind_batches(step, batches) as the step of the loop, with fastsup.loop.Epochs(data) or a "
                "fastsup.ArrayBatches as batches, or an interval in steps."
            )
        self._epoch_steps = math.ceil(self.every_epochs) * length
        self._first_step = loop.global_step - batches.position

    def _wait(self, loop: Any) -> None:
        due = self._next_due_step(loop.global_step)
        if self.every_steps == 1:
            self.due_every_run()
        elif due < math.inf:
            self.due_at_step(int(due))
        if self.every_secs is not None:
            due_in(self, self.every_secs)

    def _next_due_step(self, step: int) -> float:
        """Returns the first global step after `step` at which an interval in steps or epochs ends."""
        due = math.inf
        if self.every_steps is not None and self.every_steps < math.inf:
            interval = math.ceil(self.every_steps)
            due = (step // interval + 1) * interval
        if self.every_epochs is not None:
            done = (step - self._first_step) // self._epoch_steps
            due = min(due, self._first_step + (done + 1) * self._epoch_steps)
        return due


class CallHook(PeriodicHook):
    """A hook that calls a function with the loop. Created by `every`. Calling the hook calls the function."""

    def __init__(
        self,
        function: Callable[[Any], Any],
        every_steps: int | None,
        every_secs: float | None,
        every_epochs: int | None,
        at_end: bool,
        on_error: bool,
    ) -> None:
        super().__init__(every_steps, every_secs, every_epochs)
        self.function = function
        #: The name of the hook in a profile.
        self.profile_name: str = getattr(function, "__name__", "") or type(function).__name__
        self._at_end = at_end
        self._on_error = on_error
        self._steps_at_call = -1

    def __repr__(self) -> str:
        return f"<fastsup.loop.every hook of {self.function!r}>"

    def __call__(self, loop: Any) -> Any:
        return self.function(loop)

    def begin(self, loop: Any) -> None:
        self._steps_at_call = -1
        super().begin(loop)

    def act(self, loop: Any) -> None:
        self._steps_at_call = loop.steps
        self.function(loop)

    def end(self, loop: Any) -> None:
        if self._at_end and self._steps_at_call != loop.steps:
            self.act(loop)

    def on_error(self, loop: Any, error: BaseException) -> None:
        if self._on_error:
            self.function(loop)


@suggest_keywords
def every(
    steps: int | None = None,
    *,
    secs: float | None = None,
    epochs: int | None = None,
    at_end: bool = False,
    on_error: bool = False,
) -> Callable[[Callable[[Any], Any]], CallHook]:
    """Turns a function that takes the loop into a hook. Use it as a decorator.

        @every(steps=100)
        def report(loop):
            print(loop.global_step, loop.result)

        StepLoop(step, [report]).run()

    For a method, or for a function that must keep its name, write `every(steps=100)(model.report)`.

    Args:
      steps: the function is called at the global steps that are multiples of this number, or None.
      secs: seconds between calls, counted from the loop's start, or None. Of several intervals, the one that passes
        first counts.
      epochs: the function is called after the last step of each epoch whose number is a multiple of this number, or
        None. See `PeriodicHook` for the supported batches.
      at_end: whether to also call the function when the loop ends without an error, unless it was called after the last
        step.
      on_error: whether to also call the function after an error. To receive the error, derive a class from `Hook`.

    Returns:
      A function that creates the hook.

    Raises:
      ValueError: If an interval isn't positive, or all arguments are omitted.
      TypeError: If an interval isn't a number, or `at_end` or `on_error` isn't a bool. The returned function raises it
        if its argument isn't a function with one parameter.
    """
    if callable(steps):
        raise TypeError(f"steps must be a number, got {steps!r}. Write @every(steps=100) above a function.")
    for name, interval in (("steps", steps), ("secs", secs), ("epochs", epochs)):
        if interval is not None:
            check_interval(name, interval)
    check_flag(at_end=at_end, on_error=on_error)
    if steps is None and secs is None and epochs is None:
        if not (at_end or on_error):
            raise ValueError(
                "every requires at least one condition for the call. Pass steps, secs, epochs, at_end or on_error."
            )
        secs = math.inf

    def make(function: Callable[[Any], Any]) -> CallHook:
        check_takes("function", function, "the loop")
        return CallHook(function, steps, secs, epochs, at_end, on_error)

    return make


class StopAtStepHook(Hook):
    """Stops the loop at a global step, or after a number of steps.

    A loop that starts at or after that step runs no steps.

    Args:
      last_step: the global step after which the loop ends, including the steps of earlier runs; or
      num_steps: number of steps to run, counted from the loop's start. Pass exactly one of the two.

    Raises:
      TypeError: If `last_step` or `num_steps` isn't an integer.
      ValueError: If both or neither were given, or the given one is negative.
    """

    def __init__(self, last_step: int | None = None, num_steps: int | None = None) -> None:
        if (last_step is None) == (num_steps is None):
            raise ValueError(f"Pass last_step or num_steps, got last_step={last_step!r}, num_steps={num_steps!r}")
        for name, value in (("last_step", last_step), ("num_steps", num_steps)):
            if value is None:
                continue
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                raise TypeError(f"{name} must be an integer, got {value!r}")
            if value < 0:
                raise ValueError(
                    f"{name} must not be negative, got {value!r}. The loop would end before its first step."
                )
        self.last_step: int | None = None if last_step is None else last_step.__index__()
        self.num_steps: int | None = None if num_steps is None else num_steps.__index__()

    def begin(self, loop: Any) -> None:
        last_step = loop.global_step + self.num_steps if self.last_step is None else self.last_step
        self.reschedule(at_step=last_step)
        if loop.global_step >= last_step:
            _logger.info(
                "Skipping training: the global step is already %d, and StopAtStepHook ends the loop at %d.",
                loop.global_step,
                last_step,
            )
            loop.request_stop()

    def after_step(self, loop: Any, value: Any) -> None:
        loop.request_stop()


class TimeLimitHook(Hook):
    """Stops the loop after a time limit, at the end of the current step.

    Args:
      secs: seconds since the start of the loop, measured by a monotonic clock.

    Raises:
      ValueError: If `secs` isn't positive.
      TypeError: If `secs` isn't a number.
    """

    def __init__(self, secs: float) -> None:
        check_interval("secs", secs, optional=False)
        self.secs = secs

    def begin(self, loop: Any) -> None:
        self.never_due()
        due_in(self, self.secs)

    def after_step(self, loop: Any, value: Any) -> None:
        loop.request_stop()


def stop_steps(hooks: Iterable[Any], first_step: int) -> list[int]:
    """Returns the global steps at which `StopAtStepHook`s end a loop.

    Args:
      hooks: the hooks.
      first_step: the global step at which the loop starts.
    """
    stops = [hook for hook in hooks if isinstance(hook, StopAtStepHook)]
    return [first_step + (stop.num_steps or 0) if stop.last_step is None else stop.last_step for stop in stops]


class StopWhenHook(PeriodicHook):
    """Stops the loop when a condition is true.

    Args:
      condition: function that takes the loop and returns a truth value, for example from `loop.result` and
        `loop.global_step`.
      every_steps: the condition is checked at the global steps that are multiples of this number, or None. If both
        intervals are None, it is checked after every step.
      every_secs: seconds between checks, or None.

    Raises:
      TypeError: If `condition` can't be called, or an interval isn't a number.
      ValueError: If an interval isn't positive.
    """

    def __init__(
        self,
        condition: Callable[[Any], Any],
        every_steps: int | None = None,
        every_secs: float | None = None,
    ) -> None:
        check_takes("condition", condition, "the loop")
        super().__init__(1 if every_steps is None and every_secs is None else every_steps, every_secs)
        self._condition = condition

    def act(self, loop: Any) -> None:
        if self._condition(loop):
            loop.request_stop()
