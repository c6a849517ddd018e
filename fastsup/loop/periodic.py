"""The base class of hooks that act at intervals."""

from __future__ import annotations

import math
from typing import Any

from fastsup.core import Hook
from fastsup.core.checks import check_interval
from fastsup.core.clock import steady
from fastsup.core.schedule import Scheduled


def due_in(hook: Hook, secs: float) -> None:
    """Makes a hook due some time from now.

    `due_at_time` takes a time of day. The way over it would make each interval longer by what that clock was adjusted
    by since the process began.

    Args:
      hook: the hook.
      secs: seconds from now.
    """
    Scheduled.due_at_time(hook, steady() + secs)


class PeriodicHook(Hook):
    """Calls `act` at intervals. Subclasses override `act`.

    A resumed loop calls `act` at the same global steps as a loop that was never interrupted.

    Args:
      every_steps: `act` is called at the global steps that are multiples of this number, or None. A fraction is
        rounded up.
      every_secs: seconds between two calls, counted from the loop's begin, or None. With both intervals, the one that
        passes first counts.

    Raises:
      ValueError: an interval isn't positive, or neither is given.
      TypeError: an interval isn't a number.
    """

    def __init__(self, every_steps: int | None = None, every_secs: float | None = None) -> None:
        if every_steps is None and every_secs is None:
            raise ValueError("Either every_secs or every_steps should be provided.")
        if every_steps is not None:
            check_interval("every_steps", every_steps)
        if every_secs is not None:
            check_interval("every_secs", every_secs)
        self.every_steps = every_steps
        self.every_secs: float | None = every_secs

    def act(self, loop: Any) -> None:
        """Does the hook's work.

        Args:
          loop: the `StepLoop`, for `loop.global_step`, `loop.result` and `loop.request_stop()`.

        Raises:
          NotImplementedError: the subclass doesn't override this method.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must override act(loop): there is nothing to do at intervals."
        )

    def begin(self, loop: Any) -> None:
        self.never_due()
        self._wait(loop)

    def after_step(self, loop: Any, value: Any) -> None:
        self.act(loop)
        self._wait(loop)

    def _wait(self, loop: Any) -> None:
        if self.every_steps == 1:
            self.due_every_run()
        elif self.every_steps is not None and self.every_steps < math.inf:
            interval = math.ceil(self.every_steps)
            self.due_at_step((loop.global_step // interval + 1) * interval)
        if self.every_secs is not None:
            due_in(self, self.every_secs)
