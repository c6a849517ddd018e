"""Threads that outlive their session: their stacks, and the warning that lists them."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Iterable

from tensorflow.python.platform import tf_logging as logging

__all__ = ["describe_thread", "thread_stack", "warn_of_leaked_threads"]


def thread_stack(thread: threading.Thread) -> list[str]:
    """Returns the Python stack of a thread: "file:line in function" for each frame, the outermost first.

    Args:
      thread: a thread of this process. A thread that has ended, or hasn't started, has no frames.
    """
    frame = sys._current_frames().get(thread.ident) if thread.ident is not None else None
    if frame is None:
        return []
    # Without the text of the lines, so no file is read.
    stack = traceback.StackSummary.extract(traceback.walk_stack(frame), lookup_lines=False)
    return [f"{entry.filename}:{entry.lineno} in {entry.name}" for entry in reversed(stack)]


def describe_thread(thread: threading.Thread) -> str:
    """Returns a thread's name and its stack, one line per frame.

    Args:
      thread: a thread of this process.
    """
    kind = "" if thread.daemon else " (not a daemon: the process waits for it)"
    places = thread_stack(thread) or ["(no Python frame)"]
    return "\n".join([f"  {thread.name}{kind}, stack:", *(f"    {place}" for place in places)])


def warn_of_leaked_threads(threads: Iterable[threading.Thread], grace_secs: float) -> None:
    """Logs one WARNING with the name and the stack of each thread that is still alive. Logs nothing if none is.

    Args:
      threads: the threads that should have ended.
      grace_secs: seconds that the threads had to end.
    """
    alive = sorted((thread for thread in threads if thread.is_alive()), key=lambda thread: thread.name)
    if alive:
        logging.warning(
            "%d thread(s) still running %g seconds after the stop was requested; the run ends without them. See "
            "`python -m fastsup docs dropin#supervisor`.\n%s",
            len(alive),
            grace_secs,
            "\n".join(map(describe_thread, alive)),
        )
