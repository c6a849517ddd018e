"""Shared parts of the standard hooks: base classes, interval checks, timers, detection of log readers and threads."""

from __future__ import annotations

from threading import get_ident
from typing import Any

from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import basic_session_run_hooks as tf_hooks
from tensorflow.python.training import training_util

from fastsup.core import SecondOrStepTimer
from fastsup.core.checks import check_number, doubt_about
from fastsup.train.schedule import ScheduledHook

__all__ = ["GlobalStepHook", "NextStepHook", "TriggerRace", "check_one_interval", "compiled_timer", "info_is_read"]

# TensorFlow's class, even if a program replaces its name later.
_TFSecondOrStepTimer = tf_hooks.SecondOrStepTimer


def check_one_interval(**intervals: Any) -> None:
    """Rejects an interval that isn't a number. Warns about likely mistakes that TensorFlow accepts.

    TensorFlow's constructor refuses both intervals or neither.
    """
    given = {name: value for name, value in intervals.items() if value is not None}
    if len(given) == 1:
        name, value = given.popitem()
        check_number(name, value)
        doubt = doubt_about(name, value, "the hook acts once at most", "the hook acts in every step", "hooks")
        if doubt is not None:
            logging.warning(doubt)


def compiled_timer(timer: Any) -> Any:
    """Returns a compiled timer with the interval of TensorFlow's timer. Returns any other timer unchanged."""
    if type(timer) is _TFSecondOrStepTimer:
        return SecondOrStepTimer(timer._every_secs, timer._every_steps)
    return timer


class GlobalStepHook(ScheduledHook):
    """Base of the hooks whose schedule depends on the graph's global step."""

    _global_step_tensor: Any

    _NAME: str

    def _require_global_step(self) -> None:
        """Raises RuntimeError if the graph has no global step, before any file or thread is made."""
        if training_util.get_global_step() is None:
            raise RuntimeError(f"Global step should be created to use {self._NAME}.")

    def begin(self) -> None:
        """Finds the global step of the graph.

        Raises:
          RuntimeError: If the graph has no global step.
        """
        self._require_global_step()
        super().begin()  # type: ignore[misc]  # TensorFlow's hook of that name

    def _counts(self, step_read: Any) -> bool:
        """Returns False if a program has set another tensor for the hook's count."""
        return self._global_step_tensor is step_read

    def _step_after_run(self, session: Any) -> Any:
        """Returns the global step after the run: the session's count if there is one, otherwise a fresh read."""
        step = self.counted_step
        return session.run(self._global_step_tensor) if step is None else step


class NextStepHook(GlobalStepHook):
    """Base of the hooks that decide before a run, based on the step that they predicted after the previous run."""

    _next_step: Any
    _timer: Any
    _schedule_reads = frozenset({"_timer", "_global_step_tensor"})

    def _schedule(self, run: int, step_read: Any) -> bool:
        if self._next_step is None:
            self.due_every_run()
            return True
        if not self._counts(step_read) or not self._due_with_timer(self._timer):
            return False
        if self.next_step is not None and self._next_step >= self.next_step:
            # The previous run increased the step so much that the hook is due now.
            self.due_every_run()
        return True

    def _sync(self, skipped_runs: int, previous_step: int) -> None:
        self._next_step = previous_step + 2


# TensorFlow's own function, which a program or a test may replace later.
_info = logging.info


def info_is_read() -> bool:
    """Returns True if the logger keeps INFO lines, or if a program has replaced `tf.compat.v1.logging.info`.

    Formatting a line costs more than a short step.
    """
    return logging.info is not _info or logging.get_logger().isEnabledFor(logging.INFO)


class TriggerRace:
    """Detects whether another thread already wrote the values that both threads fetched for the same trigger.

    A hook with TensorFlow's protocol stores its decision from `before_run` in its attributes. Other threads' runs
    change these before `after_run` is called.

    Attributes:
      asked_after: the hook's number of writes at the last call of `before_run`.
    """

    def __init__(self) -> None:
        self.asked_after: int = 0
        self._writes = 0
        self._thread: int | None = None

    def note_request(self) -> None:
        """Called in `before_run`."""
        self.asked_after = self._writes

    def note_write(self) -> None:
        """Called by the thread that writes."""
        self._writes += 1
        self._thread = get_ident()

    def is_another(self, asked_after: int) -> bool:
        """Returns True if another thread wrote after a request. A hook that is in a session twice writes twice."""
        return self._writes != asked_after and self._thread != get_ident()
