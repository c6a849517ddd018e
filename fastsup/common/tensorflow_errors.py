"""Which of TensorFlow's errors are a preemption, or a failure to read. A loop without TensorFlow doesn't import it."""

from __future__ import annotations

import sys
from typing import Any

_PREEMPTIONS = ("AbortedError", "UnavailableError")
_READ_FAILURES = (
    *_PREEMPTIONS,
    "CancelledError",
    "DeadlineExceededError",
    "PermissionDeniedError",
    "ResourceExhaustedError",
    "UnauthenticatedError",
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
    return isinstance(error, MemoryError | PermissionError | TimeoutError) or _is_one_of(error, _READ_FAILURES)


def _is_one_of(error: Any, names: tuple[str, ...]) -> bool:
    errors = sys.modules.get("tensorflow.python.framework.errors_impl")
    return errors is not None and isinstance(error, tuple(getattr(errors, name) for name in names))
