"""SIGTERM and SIGINT in a training of collectives, where no task may stop on its own: the others would wait for it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from fastsup.common import stop_signals

__all__ = ["StopSignals"]


class StopSignals:
    """Records SIGTERM and SIGINT, where the program doesn't handle them. The sessions go on.

    Attributes:
      number: number of the signal that was received, or 0.
    """

    def __init__(self) -> None:
        self.number: int = 0

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Watches during a `with` block. Only the main thread can."""
        watches = stop_signals.install("all workers end after the next step, with a checkpoint.", self._receive)
        try:
            yield
        finally:
            if watches:
                stop_signals.uninstall()

    def _receive(self, number: int) -> None:
        self.number = number

    def raise_pending(self) -> None:
        """Raises what the received signal stands for.

        Raises:
          KeyboardInterrupt: it was SIGINT.
          SystemExit: it was SIGTERM; with the exit code 143.
        """
        interrupt = stop_signals.interrupt_of(self.number)
        if interrupt is not None:
            raise interrupt
