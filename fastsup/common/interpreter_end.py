"""The end of the program: what daemon threads do in TensorFlow's runtime when the interpreter is finalized.

Daemon threads run on while the interpreter is finalized. Up to Python 3.13, a thread that asks for the interpreter's
lock then is ended where it stands, by unwinding its stack. Most of TensorFlow's bindings ask for the lock in a
destructor, which nothing can be unwound through: the process aborts, with "FATAL: exception not rethrown". Running a
compiled step is no such call. Those that are, are made within `completed_before_exit`.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time

from tensorflow.python.eager import context
from tensorflow.python.platform import tf_logging as logging

__all__ = ["completed_before_exit"]

# Seconds that the end of the program waits for calls under way: a session on a cluster may wait for a task for ever.
WAIT_SECS = 5.0
# Seconds that a daemon thread is then held back. Other exit handlers run meanwhile, and one of them may wait for it.
HOLD_SECS = 5.0


class _CompletedBeforeExit:
    """Used with `with`, around calls that the end of the interpreter must not interrupt. The same thread may nest it.

    It must be entered before any lock is taken: once the program ends, a thread may be held back here.
    """

    def __init__(self) -> None:
        # How deep each thread is in such calls. Each thread changes its own entry alone, so this needs no lock.
        self._depths: dict[int, int] = {}
        self._ending_in: int | None = None
        self._hold_ended = threading.Event()
        # A session may be deleted when the names of this module are gone.
        self._this_thread = threading.get_ident

    def __enter__(self) -> None:
        thread = self._this_thread()
        depth = self._depths.get(thread, 0)
        # First this, then the look at the end: either the end sees the thread, or the thread sees the end.
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
        """Whether the program ends, in another thread than the calling one."""
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
                "The program ends while calls of TensorFlow's runtime are still under way after %g seconds, in the "
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


completed_before_exit: _CompletedBeforeExit = _CompletedBeforeExit()
# Exit handlers run when all threads but the daemons have ended, which may use their sessions until then.
atexit.register(completed_before_exit.end)
os.register_at_fork(after_in_child=completed_before_exit.forget_other_threads)


def _keep_eager_context() -> None:
    """Keeps a child process from deleting its parent's eager context when it ends.

    The context's destructor joins the threads of its pool, which aren't in the child: that can crash.
    """
    handle = getattr(context._context, "_context_handle", None)
    if handle is not None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))


os.register_at_fork(after_in_child=_keep_eager_context)
