"""A model with the values of one checkpoint, which threads predict with."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tensorflow.python.platform import tf_logging as logging

__all__ = ["LoadedModel"]


class LoadedModel:
    """A session with the values of one checkpoint. It is closed when the last thread that uses it has released it.

    Args:
      run: predicts for features.
      close: closes the session.
      turn: lock of the thread that predicts; None if several may do so at a time.
    """

    def __init__(self, run: Callable[[Any], Any], close: Callable[[], None], turn: threading.Lock | None) -> None:
        self._run = run
        self._close = close
        self._turn = turn
        self._lock = threading.Lock()
        self._users = 0
        self._is_retired = False

    def take(self) -> bool:
        """Keeps it open until `release`. Returns False if it is retired."""
        with self._lock:
            self._users += not self._is_retired
            return not self._is_retired

    def release(self) -> None:
        """Says that a thread that has taken it is done. An error of the end is logged: the thread has its result."""
        with self._lock:
            self._users -= 1
            is_last = self._is_retired and not self._users
        if is_last:
            self._end(logs_errors=True)

    def retire(self, logs_errors: bool = False) -> None:
        """Lets no other thread take it, and closes it when the last one has released it.

        Args:
          logs_errors: whether an error of the end is logged, and not raised.
        """
        with self._lock:
            is_last = not self._is_retired and not self._users
            self._is_retired = True
        if is_last:
            self._end(logs_errors)

    def _end(self, logs_errors: bool) -> None:
        try:
            self._close()
        except Exception as error:
            if not logs_errors:
                raise
            logging.error("The session of a Predictor hasn't ended well: %r", error, exc_info=error)

    def run(self, features: Any) -> Any:
        """Predicts.

        Args:
          features: what a `Predictor` is given.
        """
        if self._turn is None:
            return self._run(features)
        with self._turn:
            return self._run(features)
