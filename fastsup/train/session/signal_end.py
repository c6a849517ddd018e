"""An end that a signal has led to: the program leaves with the signal's exit code, whatever fails in that end."""

from __future__ import annotations

from typing import Any

from tensorflow.python.platform import tf_logging as logging

from fastsup.common import stop_signals

__all__ = ["is_by_signal", "log_failed_end"]


def is_by_signal(error_type: Any) -> bool:
    """True if an exception is the interrupt that a stop signal raises.

    Args:
      error_type: class of the exception; None for none.
    """
    return error_type is not None and stop_signals.received() and issubclass(error_type, KeyboardInterrupt | SystemExit)


def log_failed_end(what: str, error: BaseException) -> None:
    """Logs an error of such an end.

    Args:
      what: what has ended, for the message.
      error: the error.
    """
    logging.error("The %s has not ended well after the signal: %r", what, error, exc_info=error)
