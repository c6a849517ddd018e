"""StopAtSecsHook: stops after a time."""

from __future__ import annotations

from typing import Any

from tensorflow.python.training import session_run_hook

from fastsup.core.checks import is_number
from fastsup.core.clock import now, steady
from fastsup.loop import TimeLimitHook
from fastsup.train.schedule import ScheduledHook

__all__ = ["StopAtSecsHook"]


class StopAtSecsHook(ScheduledHook, session_run_hook.SessionRunHook):  # type: ignore[misc]
    """Requests a stop some time after the begin of the session.

    Args:
      stop_after_secs: seconds from the begin to the stop. The stop comes after the first run that ends later.

    Raises:
      TypeError: `stop_after_secs` isn't a number.
    """

    _schedule_reads = frozenset({"_stop_after_secs", "_start_time"})

    def __init__(self, stop_after_secs: float) -> None:
        if not is_number(stop_after_secs):
            raise TypeError(f"stop_after_secs must be a number of seconds, got {stop_after_secs!r}.")
        self._stop_after_secs = stop_after_secs
        self._start_time: Any = None

    def begin(self) -> None:
        """Starts the clock."""
        self._start_time = steady()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Requests a stop if the time is over."""
        if steady() - self._start_time >= self._stop_after_secs:
            run_context.request_stop()

    @property
    def loop_hook(self) -> TimeLimitHook:
        """The hook that a `StepLoop` takes in the place of this one.

        Raises:
          AttributeError: a subclass overrides `after_run`, which that hook wouldn't call.
        """
        if type(self).after_run is not StopAtSecsHook.after_run:
            raise AttributeError(f"{type(self).__name__} overrides after_run.")
        return TimeLimitHook(self._stop_after_secs)

    def _schedule(self, run: int, step_read: Any) -> bool:
        self._decide_after_run()
        self.due_at_time(now() + self._start_time + self._stop_after_secs - steady())
        return True
