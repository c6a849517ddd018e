"""Errors: the meaning of TensorFlow's, which ones are the program's own, and how many a loop or session recovers from.

This module doesn't import TensorFlow, because a loop may run without it.
"""

from __future__ import annotations

import contextlib
import errno
import operator
import os
import sys
from collections.abc import Iterator
from typing import Any

__all__ = [
    "FailureRow",
    "NoIntactCheckpointError",
    "check_max_recoveries",
    "is_end_of_input",
    "is_preemption",
    "is_read_failure",
    "is_user_error",
    "not_end_of_input",
    "writing_files",
]

_PREEMPTIONS = ("AbortedError", "UnavailableError")
_READ_FAILURES = (
    *_PREEMPTIONS,
    "CancelledError",
    "DeadlineExceededError",
    "PermissionDeniedError",
    "ResourceExhaustedError",
    "UnauthenticatedError",
)
# The errnos of these errors. If an error has lost its type, as in the checkpoint reader, its message ends with the text
# of the errno.
_READ_ERRNOS = (
    "EACCES EPERM EMFILE ENFILE ENOMEM ENOBUFS ESTALE ETIMEDOUT EHOSTDOWN EHOSTUNREACH ENETDOWN ENETUNREACH EAGAIN"
)
_READ_NUMBERS = tuple(getattr(errno, name) for name in _READ_ERRNOS.split() if hasattr(errno, name))
_READ_TEXTS = tuple(f"; {os.strerror(number)}" for number in _READ_NUMBERS)
# The end of the message of a file error that TensorFlow reports as OutOfRangeError.
_FILE_ERRORS = tuple(f"; {os.strerror(number)}" for number in (errno.EFBIG, errno.ERANGE, errno.EOVERFLOW))
_EXPLANATION = (
    "\n(TensorFlow raises OutOfRangeError for it, the error that ends a training at the end of its input. fastsup "
    "raises ResourceExhaustedError instead: free some space, or raise the limit on the file size.)"
)


def is_preemption(error: Any) -> bool:
    """Returns True for the errors that a preempted machine causes: AbortedError and UnavailableError.

    Args:
      error: an exception.
    """
    return _is_one_of(error, _PREEMPTIONS)


def is_read_failure(error: Any) -> bool:
    """Returns True for errors of reading or permissions, which don't show that the files are damaged.

    Args:
      error: an exception.
    """
    if isinstance(error, MemoryError | PermissionError | TimeoutError) or _is_one_of(error, _READ_FAILURES):
        return True
    if isinstance(error, OSError) and error.errno in _READ_NUMBERS:
        return True
    return _is_one_of(error, ("OpError",)) and any(text in error.message for text in _READ_TEXTS)


def is_end_of_input(error: Any) -> bool:
    """Returns True for errors that end a loop normally: StopIteration, or OutOfRangeError unless a file is too large.

    Args:
      error: an exception.
    """
    return isinstance(error, StopIteration) or (_is_one_of(error, ("OutOfRangeError",)) and not _is_of_a_file(error))


def not_end_of_input(error: Any) -> Any:
    """Returns the error to raise for an error of writing files.

    Args:
      error: an exception.

    Returns:
      A `tf.errors.ResourceExhaustedError` for an OutOfRangeError about a file that is too large, otherwise `error`.
    """
    if not (_is_one_of(error, ("OutOfRangeError",)) and _is_of_a_file(error)):
        return error
    kind = sys.modules["tensorflow.python.framework.errors_impl"].ResourceExhaustedError
    return kind(error.node_def, error.op, error.message + _EXPLANATION)


@contextlib.contextmanager
def writing_files() -> Iterator[None]:
    """Wraps code that writes files, and raises `not_end_of_input` of an error."""
    try:
        yield
    except Exception as error:
        raised = not_end_of_input(error)
        if raised is error:
            raise
        raise raised from error


def _is_of_a_file(error: Any) -> bool:
    return any(text in error.message for text in _FILE_ERRORS)


def _is_one_of(error: Any, names: tuple[str, ...]) -> bool:
    errors = sys.modules.get("tensorflow.python.framework.errors_impl")
    return errors is not None and isinstance(error, tuple(getattr(errors, name) for name in names))


_LIBRARIES = sys.stdlib_module_names | {"fastsup", "tensorflow", "keras", "google", "numpy", "absl", "wrapt"}


def is_user_error(error: BaseException) -> bool:
    """Returns True if an exception comes from the program (a signal handler, if the failed code calls only libraries).

    A signal handler runs between any two instructions of the main thread. A block with a fallback for any library error
    must not use it for the error of a handler, such as a time limit.

    error: the exception, where it is caught.
      error: the exception, where it is caught.
    """
    traceback = error.__traceback__
    while traceback is not None:
        module = traceback.tb_frame.f_globals.get("__name__") or ""
        if module.partition(".")[0] not in _LIBRARIES:
            return True
        traceback = traceback.tb_next
    return False


_LONGEST_DELAY_SECS = 30.0


class NoIntactCheckpointError(ValueError, RuntimeError):
    """Raised if there are checkpoints and each of them is damaged or incomplete.

    `fastsup.train.NoIntactCheckpointError`, for TensorFlow's checkpoints, is derived from it.

    Attributes:
      failures: list of (path, cause), one for each checkpoint that was tried.
    """

    failures: list[tuple[str, str]]


class FailureRow:
    """Consecutive failures. The owner determines when the row has ended; a failure itself never ends a row.

    Args:
      max_recoveries: number of consecutive failures to recover from, or None for no limit.
      what_failed: description of the failures, for the error that is logged when there are too many.
      logger: object with `warning` and `error`.

    Raises:
      TypeError: If `max_recoveries` isn't an integer.
      ValueError: If `max_recoveries` is negative.
    """

    def __init__(self, max_recoveries: int | None, what_failed: str, logger: Any) -> None:
        check_max_recoveries(max_recoveries)
        self._limit = max_recoveries
        self._what_failed = what_failed
        self._logger = logger
        self._failures = 0

    def end(self) -> None:
        """Ends the row. The next failure is the first of another row."""
        self._failures = 0

    def add(self, error: Exception, occasion: str, *values: Any) -> float:
        """Adds a failure, and logs a warning.

        Args:
          error: the error.
          occasion: the warning, as a format for `values`.
          values: the values in the warning.

        Returns:
          Seconds to wait before the next attempt: none after the first failure, then 0.1, 0.2 and so on up to 30.

        Raises:
          Exception: The error, if it exceeds the limit.
        """
        self._failures += 1
        limit = self._limit
        if limit is not None and self._failures > limit:
            self._logger.error(
                "No longer recovering: %d %s in a row. The argument max_recoveries limits them. See "
                "`python -m fastsup docs dropin#sessions-and-executors`.",
                self._failures,
                self._what_failed,
            )
            raise error
        # The exponent is limited, because failures without a limit would overflow a float.
        first = self._failures == 1
        delay = 0.0 if first else min(_LONGEST_DELAY_SECS, 0.1 * 2.0 ** min(self._failures - 2, 20))
        self._logger.warning(
            occasion + " (Failure %d%s in a row; the next try in %g seconds.)",
            *values,
            self._failures,
            "" if limit is None else f" of at most {limit + 1}",
            delay,
        )
        return delay


def check_max_recoveries(max_recoveries: Any) -> None:
    """Rejects a value that isn't a number of recoveries.

    Args:
      max_recoveries: the argument of a loop or session. None means no limit.

    Raises:
      TypeError: If the value isn't an integer.
      ValueError: If the value is negative.
    """
    if max_recoveries is None:
        return
    if isinstance(max_recoveries, bool) or not hasattr(max_recoveries, "__index__"):
        raise TypeError(f"max_recoveries must be an integer or None, got {max_recoveries!r}.")
    if operator.index(max_recoveries) < 0:
        raise ValueError(f"max_recoveries must not be negative, got {max_recoveries!r}. Pass None for no limit.")
