"""Ends of a loop: at a step, after a time, on a condition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastsup.core import Hook
from fastsup.core.checks import check_interval
from fastsup.core.clock import now
from fastsup.loop.periodic import PeriodicHook


class StopAtStepHook(Hook):
    """Stops the loop at a global step, however many steps it has done before this run.

    A loop that begins there or beyond does no step.

    Args:
      last_step: the global step after which the loop ends.

    Raises:
      TypeError: `last_step` isn't an integer.
    """

    def __init__(self, last_step: int) -> None:
        if not hasattr(last_step, "__index__"):
            raise TypeError(f"last_step must be an integer, got {last_step!r}")
        self.last_step = last_step.__index__()

    def begin(self, loop: Any) -> None:
        self.due_at_step(self.last_step)
        if loop.global_step >= self.last_step:
            loop.request_stop()

    def after_step(self, loop: Any, value: Any) -> None:
        loop.request_stop()


class TimeLimitHook(Hook):
    """Stops the loop after the step during which a time has passed since its begin.

    Args:
      secs: the time in seconds, of the wall clock.

    Raises:
      ValueError: it isn't positive.
      TypeError: it isn't a number.
    """

    def __init__(self, secs: float) -> None:
        check_interval("secs", secs, optional=False)
        self.secs = secs

    def begin(self, loop: Any) -> None:
        self.due_at_time(now() + self.secs)

    def after_step(self, loop: Any, value: Any) -> None:
        loop.request_stop()


class StopWhenHook(PeriodicHook):
    """Stops the loop when a condition holds.

    Args:
      condition: a function that takes the loop, and looks at `loop.result` and `loop.global_step`, say. The loop
        stops when it returns something true.
      every_steps: the hook looks at the global steps that are multiples of this number, or None. With `every_secs`
        None too: 1.
      every_secs: seconds between two looks, or None.

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
        if not callable(condition):
            raise TypeError(f"condition must be a function of the loop, got {condition!r}")
        super().__init__(1 if every_steps is None and every_secs is None else every_steps, every_secs)
        self._condition = condition

    def act(self, loop: Any) -> None:
        if self._condition(loop):
            loop.request_stop()
