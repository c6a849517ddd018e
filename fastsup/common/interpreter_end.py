"""Threads at the end of the program and of a session, and children of `os.fork()`, which lack these threads.

Daemon threads continue while the interpreter is finalized. Up to Python 3.13, a thread that then requests the GIL is
ended immediately, by unwinding its stack. Most of TensorFlow's bindings request it in a destructor,
which can't be unwound, so the process aborts with "FATAL: exception not rethrown". Running a compiled step
is safe. Other calls are made within `no_interpreter_exit`.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterable
from typing import Any

from tensorflow.python.eager import context
from tensorflow.python.platform import tf_logging as logging

__all__ = [
    "describe_thread",
    "fork_reason",
    "no_interpreter_exit",
    "raise_in_fork",
    "thread_stack",
    "warn_of_leaked_threads",
]

# Maximum seconds that the exit waits for running calls, because a session on a cluster may wait for a task forever.
WAIT_SECS = 5.0
# Maximum seconds that a daemon thread is blocked at the exit. Other exit handlers run during this time, and one of them
# may wait for the thread.
HOLD_SECS = 5.0


class _CompletedBeforeExit:
    """A context manager for calls that the interpreter's exit must not interrupt. The same thread may nest it.

    Enter it before any lock is taken, because a thread may be blocked here once the program exits.
    """

    def __init__(self) -> None:
        # The nesting depth of each thread in such calls. Each thread changes only its own entry, so this needs no lock.
        self._depths: dict[int, int] = {}
        self._ending_in: int | None = None
        self._hold_ended = threading.Event()
        # A session may be deleted after the names of this module.
        self._this_thread = threading.get_ident

    def __enter__(self) -> None:
        thread = self._this_thread()
        depth = self._depths.get(thread, 0)
        # Register the thread before the check for the exit, so that either the exit detects the thread, or the thread
        # detects the exit.
        self._depths[thread] = depth + 1
        if depth == 0 and self.is_over_for_this_thread():
            del self._depths[thread]
            # The interpreter's exit ends the thread here. If an exit handler waits for the thread, it continues in
            # time.
            self._hold_ended.wait(HOLD_SECS)
            self._hold_ended.set()
            self._depths[thread] = 1

    def __exit__(self, *error: object) -> None:
        thread = self._this_thread()
        depth = self._depths[thread] - 1
        if depth > 0:
            self._depths[thread] = depth
        else:
            del self._depths[thread]

    def is_over_for_this_thread(self) -> bool:
        """Returns True if another thread than the calling one is exiting the program."""
        return self._ending_in is not None and self._ending_in != self._this_thread()

    def end(self) -> None:
        """Blocks the other threads from now on, and waits for their running calls."""
        self._ending_in = self._this_thread()
        until = time.monotonic() + WAIT_SECS
        while self._others() and time.monotonic() < until:
            time.sleep(0.001)
        others = self._others()
        if others:
            names = [thread.name for thread in threading.enumerate() if thread.ident in others]
            logging.warning(
                "The program exits while calls of TensorFlow's runtime are still running after %g seconds, in the "
                "daemon threads %s. Stop and join these threads before the program ends. "
                "See `python -m fastsup docs ends`.",
                WAIT_SECS,
                names,
            )

    def forget_other_threads(self) -> None:
        """Forgets the parent's threads in a child process."""
        for thread in self._others():
            del self._depths[thread]

    def _others(self) -> list[int]:
        return [thread for thread in list(self._depths) if thread != self._this_thread()]


no_interpreter_exit: _CompletedBeforeExit = _CompletedBeforeExit()
# Exit handlers run after all threads except daemons have ended. Daemons may use their sessions until then.
atexit.register(no_interpreter_exit.end)
os.register_at_fork(after_in_child=no_interpreter_exit.forget_other_threads)


def _keep_eager_context() -> None:
    """Keeps a child process from deleting its parent's eager context when it ends.

    The context's destructor joins the threads of its pool, which the child lacks. That can crash.
    """
    handle = getattr(context._context, "_context_handle", None)
    if handle is not None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))


os.register_at_fork(after_in_child=_keep_eager_context)


def fork_reason(process: int, what_was_done: str = "made") -> str:
    """Explains why this process can't use an object of another process.

    Args:
      process: the process that the object belongs to.
      what_was_done: participle that describes the object's creation.

    Returns:
      The explanation, or "" in the process itself.
    """
    here = os.getpid()
    if here == process:
        return ""
    return (
        f"it was {what_was_done} in process {process}, and this process, {here}, is its child by os.fork(), "
        "without the threads of TensorFlow's runtime. Start processes with subprocess, or with multiprocessing's "
        "'spawn'"
    )


def raise_in_fork(process: int, what_fails: str, other_error: Any = None) -> bool:
    """Raises an error in a child of `os.fork()` that closes an object of its parent.

    Args:
      process: the process that the object belongs to.
      what_fails: start of the message, such as "The session can't be closed".
      other_error: the exception that the child is already raising, such as SystemExit, or None.

    Returns:
      False in the process itself. True in a child that is raising something else, which must leave the object
      unchanged.

    Raises:
      RuntimeError: If this is a child, and `other_error` is None.
    """
    reason = fork_reason(process)
    if reason and other_error is None:
        raise RuntimeError(f"{what_fails}: {reason}. A child that must be forked has to exit with os._exit().")
    return bool(reason)


def thread_stack(thread: threading.Thread) -> list[str]:
    """Returns the Python stack of a thread: "file:line in function" for each frame, the outermost first.

    Args:
      thread: a thread of this process. A thread that has ended, or hasn't started, has no frames.
    """
    frame = sys._current_frames().get(thread.ident) if thread.ident is not None else None
    if frame is None:
        return []
    # Leave out the text of the lines, so that no file is read.
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
    """Logs one WARNING with the name and stack of each thread that is still alive. Logs nothing if there is none.

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
