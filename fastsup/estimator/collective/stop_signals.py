"""SIGTERM and SIGINT in a training of collectives, where no task may stop on its own: the others would wait for it."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

from tensorflow.python.platform import tf_logging as logging

__all__ = ["StopSignals"]

_DEFAULTS: dict[signal.Signals, Any] = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}


class StopSignals:
    """Records SIGTERM and SIGINT, where the program doesn't handle them. A second one ends it at once."""

    def __init__(self) -> None:
        self.number: int = 0

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Watches during a `with` block. Only the main thread can."""
        watched = {}
        if threading.current_thread() is threading.main_thread():
            watched = {number: old for number, old in _DEFAULTS.items() if signal.getsignal(number) is old}
        for number in watched:
            signal.signal(number, self._note)
        try:
            yield
        finally:
            for number, old in watched.items():
                if signal.getsignal(number) == self._note:
                    signal.signal(number, old)

    def _note(self, number: int, frame: Any) -> None:
        self.number = number
        signal.signal(number, _DEFAULTS[signal.Signals(number)])
        with contextlib.suppress(RuntimeError):  # The log was being written to when the signal came.
            logging.warning(
                "%s: all workers end after the next step, with a checkpoint. A second one ends this one at once. See "
                "`python -m fastsup docs signals`.",
                signal.Signals(number).name,
            )

    def raise_pending(self) -> None:
        """Raises what the received signal stands for.

        Raises:
          KeyboardInterrupt: it was SIGINT.
          SystemExit: it was SIGTERM; with the exit code 143.
        """
        if self.number == signal.SIGINT:
            raise KeyboardInterrupt()
        if self.number:
            raise SystemExit(128 + self.number)
