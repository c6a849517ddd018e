"""Waits for calls that may never return, and watches progress that may stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

__all__ = ["LongCall", "watch_progress"]

# Number of checks in the time after which there is no progress. Checks are counted instead of seconds, because a
# process that was suspended for an hour has missed checks without being stuck.
LOOKS = 4


class LongCall:
    """A call in its own thread, for a caller that waits with a limit. TensorFlow can't limit such waits.

    Args:
      call: function without arguments.
      name: name of the thread.

    Attributes:
      thread: the thread. It is a daemon, so that a call that never returns doesn't keep the process alive.
    """

    def __init__(self, call: Callable[[], object], name: str) -> None:
        self._call = call
        self._error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self._call()
        except BaseException as error:
            self._error = error

    def has_returned(self, timeout_secs: float) -> bool:
        """Waits until the call has returned.

        Args:
          timeout_secs: maximum seconds to wait.

        Returns:
          True if the call has returned.

        Raises:
          BaseException: The error of the call.
        """
        self.thread.join(min(timeout_secs, threading.TIMEOUT_MAX))
        if self.thread.is_alive():
            return False
        if self._error is not None:
            raise self._error
        return True


def watch_progress(
    wait: Callable[[float], object], secs: float, progress: Callable[[], Any], when_still: Callable[[Any], bool]
) -> None:
    """Watches progress in the calling thread, and acts whenever it has stopped for a time.

    Args:
      wait: function that waits for a number of seconds, and returns a true value to end the watch.
      secs: seconds without progress.
      progress: function that returns a value that changes with each progress, or None to end the watch.
      when_still: function that is called with the unchanged value, and returns False to end the watch.
    """
    seen, still = progress(), 0
    while not wait(secs / LOOKS):
        before, seen = seen, progress()
        if seen is None:
            return
        still = still + 1 if seen == before else 0
        if still == LOOKS:
            still = 0
            if not when_still(seen):
                return
