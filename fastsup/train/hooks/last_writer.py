"""Keeps apart the threads that run steps of one session, for hooks that write what they fetch when a timer triggers."""

from __future__ import annotations

from threading import get_ident

__all__ = ["LastWriter"]


class LastWriter:
    """Tells a thread whether another one has written what both have fetched for the same trigger.

    A hook in TensorFlow's protocol keeps what it decides in `before_run` in its own attributes. Other threads' runs
    change these before `after_run` is called.

    Attributes:
      asked_after: how often the hook had written when `before_run` was last called.
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
        """True if another thread has written since a request. A hook that is in a session twice writes twice.

        Args:
          asked_after: what `asked_after` was when `after_run` was called.
        """
        return self._writes != asked_after and self._thread != get_ident()
