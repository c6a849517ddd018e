"""Hooks that stop a loop: at a step, after a time, on a condition."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from fastsup.core import Hook
from fastsup.core.checks import check_interval, check_takes
from fastsup.loop.periodic import PeriodicHook, due_in

_logger = logging.getLogger("fastsup")


class StopAtStepHook(Hook):
    """Stops the loop at a global step, or after a number of steps.

    A loop that begins at the step, or after it, does no step.

    Args:
      last_step: the global step after which the loop ends, including the steps of earlier runs; or
      num_steps: steps to do from the loop's begin on. Exactly one of the two.

    Raises:
      TypeError: `last_step` or `num_steps` isn't an integer.
      ValueError: both or neither were given, or the given one is negative.
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
                "Skipping training: the global step is %d already, and StopAtStepHook ends the loop at %d.",
                loop.global_step,
                last_step,
            )
            loop.request_stop()

    def after_step(self, loop: Any, value: Any) -> None:
        loop.request_stop()


class TimeLimitHook(Hook):
    """Stops the loop after a time, at the end of the step that is under way then.

    Args:
      secs: seconds since the begin of the loop, by a clock that can't be set.

    Raises:
      ValueError: `secs` isn't positive.
      TypeError: `secs` isn't a number.
    """

    def __init__(self, secs: float) -> None:
        check_interval("secs", secs, optional=False)
        self.secs = secs

    def begin(self, loop: Any) -> None:
        self.never_due()
        due_in(self, self.secs)

    def after_step(self, loop: Any, value: Any) -> None:
        loop.request_stop()


class StopWhenHook(PeriodicHook):
    """Stops the loop when a condition is true.

    Args:
      condition: function that takes the loop and returns a truth value, for example from `loop.result` and
        `loop.global_step`.
      every_steps: the condition is checked at the global steps that are multiples of this number, or None. If both
        intervals are None, it is checked after every step.
      every_secs: seconds between two checks, or None.

    Raises:
      TypeError: `condition` can't be called, or an interval isn't a number.
      ValueError: an interval isn't positive.
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
