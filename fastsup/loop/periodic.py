"""Hooks that act at intervals: their base class, and a hook made of a function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fastsup.core import Hook
from fastsup.core.checks import check_flag, check_interval, check_takes
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


class CallHook(PeriodicHook):
    """Calls a function of the loop. `every` makes it. A call of the hook calls the function.

    Args:
      function: function that takes the loop.
      every_steps: as for `PeriodicHook`.
      every_secs: as for `PeriodicHook`. Infinity for a function that is only called at the end.
      at_end: as for `every`.
      on_error: as for `every`.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        every_steps: int | None,
        every_secs: float | None,
        at_end: bool,
        on_error: bool,
    ) -> None:
        super().__init__(every_steps, every_secs)
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


def every(
    steps: int | None = None, *, secs: float | None = None, at_end: bool = False, on_error: bool = False
) -> Callable[[Callable[[Any], Any]], CallHook]:
    """Makes a hook of a function that takes the loop. It is a decorator.

        @every(steps=100)
        def report(loop):
            print(loop.global_step, loop.result)

        StepLoop(step, [report]).run()

    For a method, or a function that needs to keep its name: `every(steps=100)(model.report)`.

    Args:
      steps: the function is called at the global steps that are multiples of this number, or None.
      secs: seconds between two calls, counted from the loop's begin, or None. With both intervals, the one that passes
        first counts.
      at_end: whether the function is also called when the loop ends without an error, unless it was called after the
        last step.
      on_error: whether the function is also called after an error. A class derived from `Hook` gets the error.

    Returns:
      A function that makes the hook.

    Raises:
      ValueError: an interval isn't positive, or all arguments are left out.
      TypeError: an interval isn't a number, `at_end` or `on_error` isn't a bool; or, of the returned function, it isn't
        given a function of one argument.
    """
    if callable(steps):
        raise TypeError(f"steps must be a number, got {steps!r}. Write @every(steps=100) above a function.")
    for name, interval in (("steps", steps), ("secs", secs)):
        if interval is not None:
            check_interval(name, interval)
    check_flag(at_end=at_end, on_error=on_error)
    if steps is None and secs is None:
        if not (at_end or on_error):
            raise ValueError("every must say when the function is called. Pass steps, secs, at_end or on_error.")
        secs = math.inf

    def make(function: Callable[[Any], Any]) -> CallHook:
        check_takes("function", function, "the loop")
        return CallHook(function, steps, secs, at_end, on_error)

    return make
