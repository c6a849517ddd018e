"""What a child of `os.fork()` is told that uses what its parent has made."""

from __future__ import annotations

import os
from typing import Any

__all__ = ["fork_reason", "raise_in_fork"]


def fork_reason(process: int, what_was_done: str = "made") -> str:
    """Explains why this process can't use an object of another process.

    Args:
      process: the process that the object belongs to.
      what_was_done: how the object came to be there.

    Returns:
      The explanation; an empty string in the process itself.
    """
    here = os.getpid()
    if here == process:
        return ""
    return (
        f"it was {what_was_done} in process {process}, of which this process, {here}, is a child by os.fork(): the "
        "threads of TensorFlow's runtime aren't in it. Start processes with subprocess, or with multiprocessing's "
        "'spawn'"
    )


def raise_in_fork(process: int, what_fails: str, other_error: Any = None) -> bool:
    """Raises an error in a child of `os.fork()` that closes what its parent has made.

    Args:
      process: the process that the object belongs to.
      what_fails: start of the message, as "The session can't be closed".
      other_error: what the child is raising already, such as SystemExit; None for nothing. It goes on.

    Returns:
      False in the process itself. True in a child that is raising something else: the object is to be left as it is.

    Raises:
      RuntimeError: this is a child, and `other_error` is None.
    """
    reason = fork_reason(process)
    if reason and other_error is None:
        raise RuntimeError(f"{what_fails}: {reason}. A child that must be forked ends with os._exit().")
    return bool(reason)
