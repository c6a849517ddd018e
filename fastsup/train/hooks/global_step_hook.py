"""What the standard hooks share: intervals, timers, and the global step that they count by."""

from __future__ import annotations

from typing import Any

from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import basic_session_run_hooks as tf_hooks
from tensorflow.python.training import training_util

from fastsup.core import SecondOrStepTimer
from fastsup.core.checks import check_number, doubt_about
from fastsup.train.scheduler.scheduled_hook import ScheduledHook

__all__ = ["GlobalStepHook", "NextStepHook", "check_one_interval", "own_timer"]

# TensorFlow's class, whatever a program binds under its name later.
_TFSecondOrStepTimer = tf_hooks.SecondOrStepTimer


def check_one_interval(**intervals: Any) -> None:
    """Refuses an interval that is no number, before anything is made. Both or neither is for TensorFlow to refuse.

    An interval that is likely a mistake is taken as TensorFlow takes it, and a warning says so.
    """
    given = {name: value for name, value in intervals.items() if value is not None}
    if len(given) == 1:
        name, value = given.popitem()
        check_number(name, value)
        doubt = doubt_about(name, value, "the hook acts once at most", "the hook acts in every step")
        if doubt is not None:
            logging.warning(doubt)


def own_timer(timer: Any) -> Any:
    """Our timer in place of TensorFlow's, with the same interval."""
    if type(timer) is _TFSecondOrStepTimer:
        return SecondOrStepTimer(timer._every_secs, timer._every_steps)
    return timer


class GlobalStepHook(ScheduledHook):
    """A hook whose schedule speaks of the graph's own global step."""

    _global_step_tensor: Any

    _NAME: str

    def _require_global_step(self) -> None:
        """Refuses a graph without global step before there is a file or a thread."""
        if training_util.get_global_step() is None:
            raise RuntimeError(f"Global step should be created to use {self._NAME}.")

    def begin(self) -> None:
        """Finds the global step of the graph.

        Raises:
          RuntimeError: the graph has none.
        """
        self._require_global_step()
        super().begin()  # type: ignore[misc]  # TensorFlow's hook of that name

    def _counts(self, step_read: Any) -> bool:
        """False for a hook that was given another tensor to count by."""
        return self._global_step_tensor is step_read

    def _step_after_run(self, session: Any) -> Any:
        """The global step after the run whose `after_run` this is: as the session counts it, or else as it reads it."""
        step = self.counted_step
        return session.run(self._global_step_tensor) if step is None else step


class NextStepHook(GlobalStepHook):
    """A hook that decides before a run, on the step that it foresaw in the run before."""

    _next_step: Any
    _timer: Any

    def _schedule(self, run: int, step_read: Any) -> bool:
        if self._next_step is None:
            self.due_every_run()
            return True
        if not self._counts(step_read) or not self._due_with_timer(self._timer):
            return False
        if self.next_step is not None and self._next_step >= self.next_step:
            # Having seen the true step after a run that added much to it, it knows now that it is due.
            self.due_every_run()
        return True

    def _sync(self, skipped_runs: int, previous_step: int) -> None:
        self._next_step = previous_step + 2
