"""Ctrl-C in a model's `fit`, `evaluate` and `predict`: raises interrupts that Keras dropped."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

__all__ = ["DroppedInterrupt"]

# Functions that swallow exceptions, including Ctrl-C's, with their modules. The first ones, from new and old releases,
# convert logs to numbers, which takes a sixth of the time of the smallest steps.
_DROPPING = {
    ("pythonify_logs", "keras.src.utils.python_utils"),
    ("_pythonify_logs", "keras.src.trainers.trainer"),
    ("remove", "weakref"),
}


class DroppedInterrupt:
    """Records a KeyboardInterrupt that arrives where Keras or Python drops it."""

    def __init__(self) -> None:
        self._dropped = False

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Records interrupts during a `with` block, in the main thread, if the program doesn't handle SIGINT.

        Raises:
          KeyboardInterrupt: At the end of the block, if one was dropped.
        """
        default = signal.default_int_handler
        if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not default:
            yield
            return
        signal.signal(signal.SIGINT, self._interrupt)
        try:
            yield
        finally:
            if signal.getsignal(signal.SIGINT) == self._interrupt:
                signal.signal(signal.SIGINT, default)
        self.check()

    def check(self) -> None:
        """Raises the dropped exception.

        Raises:
          KeyboardInterrupt: If one was dropped.
        """
        if self._dropped:
            self._dropped = False
            raise KeyboardInterrupt

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        while frame is not None and not self._dropped:
            self._dropped = _drops_exceptions(frame)
            frame = frame.f_back
        raise KeyboardInterrupt


def _drops_exceptions(frame: FrameType) -> bool:
    name = frame.f_code.co_name
    return name == "__del__" or (name, frame.f_globals.get("__name__")) in _DROPPING
