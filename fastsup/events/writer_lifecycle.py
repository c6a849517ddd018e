"""The lifecycle of summary writers: a session's event files are closed with it, and the next event opens another file.

TensorFlow keeps one FileWriter per directory in its FileWriterCache and never closes it, so each directory costs a
thread and two file descriptors. Here the writer stays in the cache and only its file is closed.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable
from itertools import count
from typing import Any

from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.summary.writer import event_file_writer, writer_cache
from tensorflow.python.summary.writer import writer as tf_writer

from fastsup.events.summary_buffer import flush_summaries

_open_sessions: weakref.WeakSet[Any] = weakref.WeakSet()
_of_parent: weakref.WeakSet[Any] = weakref.WeakSet()
_reopened = count(1)
_lock = threading.RLock()  # Reentrant: garbage collection may close a session while this thread holds the lock.


class ClosedEventFile:
    """Replaces the EventFileWriter of a FileWriter while its file is closed. The next event opens another file.

    Args:
      writer: the `tf.compat.v1.summary.FileWriter`.
      event_writer: its EventFileWriter, which the caller closes.
    """

    def __init__(self, writer: Any, event_writer: Any) -> None:
        self._writer = writer
        self._logdir: str = event_writer.get_logdir()
        self._queue_options = (event_writer._max_queue, event_writer._flush_secs)

    def get_logdir(self) -> str:
        """Returns the directory of the event files."""
        return self._logdir

    def add_event(self, event: Any) -> None:
        """Writes an event to a new file."""
        writer = self._writer
        with _lock:
            if writer.event_writer is self:
                # TensorFlow names files by the second and overwrites a file of the same name. TensorBoard reads the
                # files in the order of their names.
                suffix = f".{next(_reopened):06}"
                writer.event_writer = event_file_writer.EventFileWriter(self._logdir, *self._queue_options, suffix)
        writer.event_writer.add_event(event)

    def flush(self) -> None:
        """Does nothing: the closed file is complete."""

    def close(self) -> None:
        """Does nothing: the file is closed already."""

    def reopen(self) -> None:
        """Does nothing: the next event opens a file."""


def _leave_to_parent() -> None:
    """Leaves event files to the parent, in a child of `os.fork()`, which has no threads that write them."""
    global _lock
    _lock = threading.RLock()
    _of_parent.update(_open_sessions)
    _open_sessions.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


def register_session(session: Any) -> None:
    """Registers a session whose hooks write events. Its event files stay open until `close_writers`.

    Args:
      session: object with a list `_hooks`. A hook that writes events has a `_summary_writer`.
    """
    with _lock:
        _open_sessions.add(session)


def close_writers(session: Any) -> None:
    """Closes the event files of a session's hooks, except files that another registered session writes.

    A writer of the program's own, which isn't in TensorFlow's cache, is flushed. Errors are logged. In a child of
    `os.fork()` the files of its parent's sessions are left alone.

    Args:
      session: the object that was given to `register_session`.
    """
    if session in _of_parent:
        return
    with _lock:
        _open_sessions.discard(session)
        others = list(_open_sessions)
    used = {id(writer) for other in others for writer in _writers(other._hooks)}
    for writer in {id(writer): writer for writer in _writers(session._hooks)}.values():
        _complete(writer, used_by_others=id(writer) in used)


def _complete(writer: Any, used_by_others: bool) -> None:
    try:
        flush_summaries(writer)
        if used_by_others or not _is_shared(writer) or not _close_file(writer):
            writer.flush()
    except Exception as error:
        logging.error("The event file in %s could not be completed: %r", writer.get_logdir(), error)


def _writers(hooks: Iterable[Any]) -> list[Any]:
    return [writer for writer in map(_writer, hooks) if isinstance(writer, tf_writer.FileWriter)]


def _writer(hook: Any) -> Any:
    try:
        return getattr(hook, "_summary_writer", None)
    except Exception as error:
        logging.error("The _summary_writer of the hook %r could not be read: %r", hook, error)
        return None


def _is_shared(writer: Any) -> bool:
    """Returns True if a writer is in TensorFlow's cache."""
    return any(cached is writer for cached in list(writer_cache.FileWriterCache._cache.values()))


def _close_file(writer: Any) -> bool:
    """Closes the file of a writer, which stays usable. Returns False for a writer of another class, or a closed one."""
    event_writer = writer.event_writer
    if type(event_writer) is not event_file_writer.EventFileWriter or writer._closed:
        return False
    # Before the file is closed: another thread's event must go to the next file.
    writer.event_writer = ClosedEventFile(writer, event_writer)
    event_writer.close()
    return True
