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
      error: the error. The signal's own interrupt isn't a failure: it ends what a hook runs at the end, an evaluation
        for example.
    """
    interrupt = stop_signals.pending_interrupt()
    if type(error) is type(interrupt) and error.args == interrupt.args:
        logging.info(
            "The end of the %s ran something that the signal has interrupted: an evaluation, for example.", what
        )
        return
    logging.error("The %s has not ended well after the signal: %r", what, error, exc_info=error)
