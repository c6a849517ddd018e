"""Closing a session on a cluster, where a task of it may be gone."""

from __future__ import annotations

import atexit
import ctypes
import threading
import time
from collections.abc import Callable

from tensorflow.python.platform import tf_logging as logging

__all__ = ["CLOSE_SECS", "close_remote"]

# Seconds that closing a session may take.
CLOSE_SECS = 10.0
# Seconds that the end of the program waits for abandoned sessions. TensorFlow gives up a task that is gone after some
# ten seconds; a close that comes back from there later than this aborts the program, with a wrong exit code.
_EXIT_SECS = 10.0

_abandoned: list[threading.Thread] = []


@atexit.register
def _wait_for_abandoned() -> None:
    """A thread that comes back from the runtime while Python is being taken down aborts the process."""
    until = time.monotonic() + _EXIT_SECS
    for thread in _abandoned:
        thread.join(max(0.0, until - time.monotonic()))
    if any(thread.is_alive() for thread in _abandoned):
        _skip_destructors()


def _skip_destructors() -> None:
    """Has the process end, with its exit code, before the runtime's destructors make the closes come back."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):  # glibc alone has it.
        # Its handlers are called with the exit code first, which is what `_exit` takes.
        libc.on_exit(ctypes.cast(libc._exit, ctypes.c_void_p), None)


def close_remote(close: Callable[[], None], target: object) -> None:
    """Closes a session in its own thread, and abandons it if that takes too long.

    TensorFlow's runtime tells every task of the cluster, and waits for a task that is gone until there is a new one at
    its address: for ever, if none is started.

    Args:
      close: what closes the session. It keeps the session alive while it runs.
      target: the execution engine that the session is connected to.

    Raises:
      tf.errors.OpError: TensorFlow couldn't close the session.
    """
    failures: list[BaseException] = []

    def run() -> None:
        try:
            close()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, name=f"closing a session of {target!r}", daemon=True)
    thread.start()
    thread.join(CLOSE_SECS)
    if thread.is_alive():
        logging.warning(
            "A session of %s isn't closed after %g s and is abandoned: a task of its cluster doesn't answer. See "
            "`python -m fastsup docs dropin#sessions-and-executors`.",
            target,
            CLOSE_SECS,
        )
        _abandoned[:] = [other for other in _abandoned if other.is_alive()] + [thread]
    elif failures:
        raise failures[0]
