"""The standard hooks for a start and end at a global step: GlobalStepWaiterHook and StopAtStepHook."""

from __future__ import annotations

import math
import time
from typing import Any

from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import basic_session_run_hooks as tf_hooks

from fastsup.common import stop_signals
from fastsup.core.checks import check_number
from fastsup.loop.periodic import StopAtStepHook as LoopStopAtStepHook
from fastsup.train.hooks.bases import GlobalStepHook
from fastsup.train.schedule import ScheduledHook

__all__ = ["GlobalStepWaiterHook", "StopAtStepHook"]

# Seconds between reads of the global step, and global steps between two log lines.
_POLL_SECS = 0.5
_LOG_STEPS = 1000


class GlobalStepWaiterHook(ScheduledHook, tf_hooks.GlobalStepWaiterHook):  # type: ignore[misc]
    """Delays the first run until training reaches a global step, or until a signal ends the session.

    Args:
      wait_until_step: global step to wait for. If 0 or less, doesn't wait.
    """

    _schedule_reads = frozenset({"_worker_is_started"})
    _global_step_tensor: Any
    _wait_until_step: int
    _worker_is_started: bool

    def before_run(self, run_context: Any) -> None:
        """Waits before the first run."""
        if not self._worker_is_started and self._wait_until_step > 0:
            logging.info("Waiting for global step %d before starting training.", self._wait_until_step)
            self._wait(run_context)
        self._worker_is_started = True

    def _wait(self, run_context: Any) -> None:
        logged_step = 0
        while True:
            step = run_context.session.run(self._global_step_tensor)
            # The session raises the signal's exception at the end of a run.
            if step >= self._wait_until_step or stop_signals.received() or not self._keeps_waiting(run_context, step):
                return
            if step - logged_step > _LOG_STEPS:
                logging.info(
                    "Waiting for global step %d before starting training. Current step is %d.",
                    self._wait_until_step,
                    step,
                )
                logged_step = step
            time.sleep(_POLL_SECS)

    def _keeps_waiting(self, run_context: Any, step: Any) -> bool:
        """Returns True to continue waiting at this step. A subclass may end the wait."""
        return True

    def _schedule(self, run: int, step_read: Any) -> bool:
        if not self._worker_is_started:
            self.due_every_run()
        return True


# A global step that no training reaches.
_NEVER = 2**63 - 1


class StopAtStepHook(GlobalStepHook, tf_hooks.StopAtStepHook):  # type: ignore[misc]
    """Requests a stop once training reaches a global step.

    Args:
      num_steps: global steps to train after the session is created. Specify either this or `last_step`.
      last_step: global step at which to stop.

    Raises:
      ValueError: If both or neither of `num_steps` and `last_step` are given.
      TypeError: If the given one isn't a number.
    """

    _NAME = "StopAtStepHook"
    _schedule_reads = frozenset({"_last_step", "_global_step_tensor"})
    _last_step: Any
    _num_steps: Any

    def __init__(self, num_steps: Any = None, last_step: Any = None) -> None:
        super().__init__(num_steps, last_step)
        for name, value in (("num_steps", num_steps), ("last_step", last_step)):
            if value is not None:
                check_number(name, value, "a number of steps")

    @property
    def loop_hook(self) -> LoopStopAtStepHook:
        """The hook that a `StepLoop` uses instead of this one.

        Raises:
          AttributeError: If a subclass overrides a callback, which the other hook wouldn't call.
          TypeError: If the step isn't an integer.
        """
        kind = type(self)
        if (kind.before_run, kind.after_run) != (StopAtStepHook.before_run, StopAtStepHook.after_run):
            raise AttributeError(f"{kind.__name__} overrides before_run or after_run.")
        if self._num_steps is not None:
            return LoopStopAtStepHook(num_steps=self._num_steps)
        return LoopStopAtStepHook(last_step=self._last_step)

    def _schedule(self, run: int, step_read: Any) -> bool:
        if self._last_step is None or not self._counts(step_read):
            return False
        try:
            last_step = math.ceil(self._last_step)
        except (OverflowError, ValueError):
            # The last step is infinity or NaN.
            last_step = 0 if self._last_step < 0 else _NEVER
        except TypeError:
            return False
        self._decide_after_run()
        self.due_at_step(last_step)
        return True
