"""Threads that outlive the session they belong to: which they are, and where they stand."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Iterable

from tensorflow.python.platform import tf_logging as logging

__all__ = ["describe", "stack_of", "warn_of_stray_threads"]


def stack_of(thread: threading.Thread) -> list[str]:
    """Where a thread stands: "file:line in function" of each of its frames, the outermost first.

    Args:
      thread: a thread of this process. One that has ended, or not begun, has no frames.
    """
    frame = sys._current_frames().get(thread.ident) if thread.ident is not None else None
    if frame is None:
        return []
    # The lines' text isn't needed: only their numbers, so no file is read.
    stack = traceback.StackSummary.extract(traceback.walk_stack(frame), lookup_lines=False)
    return [f"{entry.filename}:{entry.lineno} in {entry.name}" for entry in reversed(stack)]


def describe(thread: threading.Thread) -> str:
    """A thread's name and where it stands, in a line for each frame.

    Args:
      thread: a thread of this process.
    """
    kind = "" if thread.daemon else " (not a daemon: the process waits for it)"
    places = stack_of(thread) or ["somewhere outside Python"]
    return "\n".join([f"  {thread.name}{kind}, standing at", *(f"    {place}" for place in places)])


def warn_of_stray_threads(threads: Iterable[threading.Thread], grace_secs: float) -> None:
    """Logs one WARNING that names each thread that is still alive and where it stands. None alive: logs nothing.

    Args:
      threads: the threads that should have ended.
      grace_secs: seconds that they were given.
    """
    stray = sorted((thread for thread in threads if thread.is_alive()), key=lambda thread: thread.name)
    if stray:
        logging.warning(
            "%d thread(s) still running %g seconds after the stop was requested; the run ends without them.\n%s",
            len(stray),
            grace_secs,
            "\n".join(map(describe, stray)),
        )
