"""WatchdogHook, which detects that training is stuck, logs the stacks of all threads, and can end the session."""

from __future__ import annotations

import math
import threading
from typing import Any

from tensorflow.python.framework import errors
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import session_run_hook

from fastsup.common.interpreter_end import describe_thread
from fastsup.common.liveness import watch_progress
from fastsup.core.checks import check_flag
from fastsup.runtime.session import Session
from fastsup.train.schedule import ScheduledHook

__all__ = ["WatchdogHook"]


class WatchdogHook(ScheduledHook, session_run_hook.SessionRunHook):  # type: ignore[misc]
    """Logs the stacks of all threads as one ERROR if no step finishes for `timeout_secs`, once per stall.

    Every run with hooks is a step. The timeout also includes the time between steps: the program's own code, hooks,
    and the preparation of the first step. Choose a timeout that is longer than the longest of these, for example an
    evaluation or a checkpoint. The hook adds no cost to a step. A thread checks the progress four times per timeout, so
    it detects a stall up to a quarter of the timeout late.

    Args:
      timeout_secs: maximum seconds between the ends of two steps.
      stop: Whether to also end the session. The current step is cancelled, and this step and all later ones raise
        `tf.errors.DeadlineExceededError`. Python code that a step calls can't be cancelled. Nothing is saved. In
        TensorFlow's sessions, the step raises TensorFlow's error for a cancelled step, and closing the session raises
        the DeadlineExceededError.

    Raises:
      TypeError: If `timeout_secs` isn't a number, or `stop` isn't a bool.
      ValueError: If `timeout_secs` isn't positive and finite.
    """

    def __init__(self, timeout_secs: float, stop: bool = False) -> None:
        if isinstance(timeout_secs, bool) or not hasattr(timeout_secs, "__float__"):
            raise TypeError(f"timeout_secs must be a number of seconds, got {timeout_secs!r}.")
        if not 0 < timeout_secs < math.inf:
            raise ValueError(
                f"timeout_secs must be positive and finite, got {timeout_secs!r}. To watch nothing, omit the hook."
            )
        check_flag(stop=stop)
        self._timeout_secs = float(timeout_secs)
        self._stop = stop
        self._calls = 0
        self._watch_ended = threading.Event()

    def after_create_session(self, session: Any, coord: Any) -> None:
        self._watch_ended.set()
        self._watch_ended = threading.Event()
        watch = _Watch(session, coord, self, self._watch_ended)
        threading.Thread(target=watch.run, name="watchdog", daemon=True).start()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        # Sessions without schedules call this. Other sessions count their runs.
        self._calls += 1

    def end(self, session: Any) -> None:
        self._watch_ended.set()

    def _schedule(self, run: int, step_read: Any) -> bool:
        return True

    def _before_end(self) -> None:
        self._watch_ended.set()


class _Watch:
    """Runs in the thread that watches one session."""

    def __init__(self, session: Any, coord: Any, hook: WatchdogHook, ended: threading.Event) -> None:
        self._session = session
        self._coord = coord
        self._timeout_secs = hook._timeout_secs
        self._stop = hook._stop
        self._hook = hook
        self._ended = ended
        # The progress at the last stall, which is reported once.
        self._reported: Any = None

    def run(self) -> None:
        """Checks the progress until the session has ended."""
        watch_progress(self._ended.wait, self._timeout_secs, self._progress, self._when_still)

    def _progress(self) -> tuple[int, int] | None:
        if getattr(self._session, "_closed", False):
            return None  # TensorFlow's sessions don't call hooks on every exit.
        return getattr(self._session, "runs_ended", 0), self._hook._calls

    def _when_still(self, seen: Any) -> bool:
        if seen == self._reported:
            return True
        self._reported = seen
        self._report()
        if self._stop:
            self._end_session()
        return not self._stop

    def _report(self) -> None:
        threads = sorted(threading.enumerate(), key=lambda thread: thread is not threading.main_thread())
        logging.error(
            "WatchdogHook: no step has finished for %g seconds. %s\n%s",
            self._timeout_secs,
            "Ending the session." if self._stop else "Its stop argument would end the session.",
            "\n".join(describe_thread(thread) for thread in threads if thread is not threading.current_thread()),
        )

    def _end_session(self) -> None:
        error = errors.DeadlineExceededError(
            None,
            None,
            f"WatchdogHook ended the session: no step finished for timeout_secs={self._timeout_secs:g} "
            "seconds. "
            "The log shows each thread's position.",
        )
        if self._coord is not None:
            # Report the error to the coordinator, for loops that call should_stop() and for other session classes.
            with self._coord.stop_on_exception():
                raise error
        if isinstance(self._session, Session):
            self._session._give_up(error)
        else:
            self._session.close()
