"""GlobalStepWaiterHook: delays training until the global step has reached a step."""

from __future__ import annotations

import time
from typing import Any

from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import basic_session_run_hooks as tf_hooks

from fastsup.common import stop_signals
from fastsup.train.scheduler.scheduled_hook import ScheduledHook

__all__ = ["GlobalStepWaiterHook"]

# Seconds between two reads of the global step, and global steps between two log lines.
_POLL_SECS = 0.5
_LOG_STEPS = 1000


class GlobalStepWaiterHook(ScheduledHook, tf_hooks.GlobalStepWaiterHook):  # type: ignore[misc]
    """Delays the first run until the global step has reached a step, or until a signal ends the session.

    Args:
      wait_until_step: global step to wait for; 0 or less for no wait.
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
            # The session raises a signal at the end of a run.
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
        """Returns True to keep waiting although training is only at this step. Subclasses may end the wait."""
        return True

    def _schedule(self, run: int, step_read: Any) -> bool:
        if not self._worker_is_started:
            self.due_every_run()
        return True
