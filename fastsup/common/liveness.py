"""Waits that may never end: a call that may never return, and a watch over progress that may stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

__all__ = ["LongCall", "watch_progress"]

# Progress is looked at so often in the time after which it counts as none. Looks are counted, not seconds: a process
# that was suspended for an hour has missed looks, but nothing has stood still.
LOOKS = 4


class LongCall:
    """A call in its own thread, for a caller that waits with a limit. No limit of TensorFlow's ends such a wait.

    Args:
      call: function without arguments.
      name: name of the thread.

    Attributes:
      thread: the thread. A daemon: if the call never returns, it must not keep the process alive.
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
          timeout_secs: seconds to wait at most.

        Returns:
          True if the call has returned.

        Raises:
          BaseException: the error of the call.
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
    """Watches something, in the calling thread, and acts whenever it has stood still for a time.

    Args:
      wait: function that waits for a number of seconds, and returns a true value if the watch is to end.
      secs: seconds without progress.
      progress: function that returns a value that changes with each progress; None if the watch is to end.
      when_still: function that is called with the unchanged value. Returns False if the watch is to end.
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
