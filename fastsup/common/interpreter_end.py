"""Threads at the end of the program and of a session, and children of `os.fork()`, in which they aren't.

Daemon threads run on while the interpreter is finalized. Up to Python 3.13, a thread that asks for the interpreter's
lock then is ended where it stands, by unwinding its stack. Most of TensorFlow's bindings ask for the lock in a
destructor, which nothing can be unwound through: the process aborts, with "FATAL: exception not rethrown". Running a
compiled step is no such call. Those that are, are made within `no_interpreter_exit`.
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

# Seconds that the program's exit waits for running calls: a session on a cluster may wait for a task forever.
WAIT_SECS = 5.0
# Seconds that a daemon thread is then held back. Other exit handlers run in the meantime, and one of them may wait for
# it.
HOLD_SECS = 5.0


class _CompletedBeforeExit:
    """Used with `with`, around calls that the end of the interpreter must not interrupt. The same thread may nest it.

    It must be entered before any lock is taken: once the program ends, a thread may be held back here.
    """

    def __init__(self) -> None:
        # How deep each thread is in such calls. Each thread changes only its own entry, so this needs no lock.
        self._depths: dict[int, int] = {}
        self._ending_in: int | None = None
        self._hold_ended = threading.Event()
        # A session may be deleted when the names of this module are gone.
        self._this_thread = threading.get_ident

    def __enter__(self) -> None:
        thread = self._this_thread()
        depth = self._depths.get(thread, 0)
        # First this, then the check for the exit: either the exit detects the thread, or the thread detects the exit.
        self._depths[thread] = depth + 1
        if depth == 0 and self.is_over_for_this_thread():
            del self._depths[thread]
            # The interpreter's end ends the thread here. If an exit handler waits for the thread, it goes on in time.
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
        """Returns True if the program ends, in another thread than the calling one."""
        return self._ending_in is not None and self._ending_in != self._this_thread()

    def end(self) -> None:
        """Holds back the other threads from now on, and waits for the calls that they have under way."""
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
        """In a child process: the threads of its parent aren't there."""
        for thread in self._others():
            del self._depths[thread]

    def _others(self) -> list[int]:
        return [thread for thread in list(self._depths) if thread != self._this_thread()]


no_interpreter_exit: _CompletedBeforeExit = _CompletedBeforeExit()
# Exit handlers run when all threads but the daemons have ended, which may use their sessions until then.
atexit.register(no_interpreter_exit.end)
os.register_at_fork(after_in_child=no_interpreter_exit.forget_other_threads)


def _keep_eager_context() -> None:
    """Keeps a child process from deleting its parent's eager context when it ends.

    The context's destructor joins the threads of its pool, which aren't in the child: that can crash.
    """
    handle = getattr(context._context, "_context_handle", None)
    if handle is not None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))


os.register_at_fork(after_in_child=_keep_eager_context)


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
        f"it was {what_was_done} in process {process}, and this process, {here}, is its child by os.fork(), "
        "without the threads of TensorFlow's runtime. Start processes with subprocess, or with multiprocessing's "
        "'spawn'"
    )


def raise_in_fork(process: int, what_fails: str, other_error: Any = None) -> bool:
    """Raises an error in a child of `os.fork()` that closes an object of its parent.

    Args:
      process: the process that the object belongs to.
      what_fails: start of the message, as "The session can't be closed".
      other_error: the exception that the child is already raising, such as SystemExit, or None. It goes on.

    Returns:
      False in the process itself. True in a child that is raising something else: the object is to be left as it is.

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
