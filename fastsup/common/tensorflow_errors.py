"""What TensorFlow's errors mean: a preemption, a failure to read, the end of the input, a file that is too large.

A loop without TensorFlow doesn't import it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from typing import Any

__all__ = ["is_end_of_input", "is_preemption", "is_read_failure", "not_end_of_input", "writing_files"]

_PREEMPTIONS = ("AbortedError", "UnavailableError")
_READ_FAILURES = (
    *_PREEMPTIONS,
    "CancelledError",
    "DeadlineExceededError",
    "PermissionDeniedError",
    "ResourceExhaustedError",
    "UnauthenticatedError",
)
# How the message of such an error ends where it has lost its type, as in the reader of checkpoints.
_READ_ERRNOS = (
    "EACCES EPERM EMFILE ENFILE ENOMEM ENOBUFS ESTALE ETIMEDOUT EHOSTDOWN EHOSTUNREACH ENETDOWN ENETUNREACH EAGAIN"
)
_READ_TEXTS = tuple(f"; {os.strerror(getattr(errno, name))}" for name in _READ_ERRNOS.split() if hasattr(errno, name))
# How the message of an error of a file ends that TensorFlow gives the type OutOfRangeError.
_FILE_ERRORS = tuple(f"; {os.strerror(number)}" for number in (errno.EFBIG, errno.ERANGE, errno.EOVERFLOW))
_EXPLANATION = (
    "\n(TensorFlow raises OutOfRangeError for it, the error that ends a training at the end of its input. It is raised "
    "as ResourceExhaustedError instead: make room, or lift the limit on the size of files.)"
)


def is_preemption(error: Any) -> bool:
    """True for the errors that a preempted machine causes: AbortedError and UnavailableError.

    Args:
      error: an exception.
    """
    return _is_one_of(error, _PREEMPTIONS)


def is_read_failure(error: Any) -> bool:
    """True for errors of the machine that reads files, or of its permissions: no sign that the files are damaged.

    Args:
      error: an exception.
    """
    if isinstance(error, MemoryError | PermissionError | TimeoutError) or _is_one_of(error, _READ_FAILURES):
        return True
    return _is_one_of(error, ("OpError",)) and any(text in error.message for text in _READ_TEXTS)


def is_end_of_input(error: Any) -> bool:
    """True for the errors that end a loop normally: StopIteration, and OutOfRangeError unless a file is too large.

    Args:
      error: an exception.
    """
    return isinstance(error, StopIteration) or (_is_one_of(error, ("OutOfRangeError",)) and not _is_of_a_file(error))


def not_end_of_input(error: Any) -> Any:
    """The error to raise for an error of writing files.

    Args:
      error: an exception.

    Returns:
      A `tf.errors.ResourceExhaustedError` for an OutOfRangeError that says that a file is too large; else `error`.
    """
    if not (_is_one_of(error, ("OutOfRangeError",)) and _is_of_a_file(error)):
        return error
    kind = sys.modules["tensorflow.python.framework.errors_impl"].ResourceExhaustedError
    return kind(error.node_def, error.op, error.message + _EXPLANATION)


@contextlib.contextmanager
def writing_files() -> Iterator[None]:
    """Around code that writes files: raises `not_end_of_input` of an error."""
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
