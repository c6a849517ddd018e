"""Event files are closed with the session that wrote them, and opened again by whoever writes on.

TensorFlow keeps one FileWriter a directory for the whole program, in its FileWriterCache, and never closes it: each
directory costs a thread and two file descriptors. The writer stays where it is here; only its file is closed.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable
from itertools import count
from typing import Any

from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.summary.writer import event_file_writer, writer_cache
from tensorflow.python.summary.writer import writer as tf_writer

from fastsup.events.summary_buffer import hand_over

_open_sessions: weakref.WeakSet[Any] = weakref.WeakSet()
_reopened = count(1)
_opening = threading.RLock()  # Garbage collection may end a session anywhere.


class ClosedEventFile:
    """Stands for a FileWriter's EventFileWriter while there is nothing to write. The next event opens another file.

    Args:
      writer: the `tf.compat.v1.summary.FileWriter`.
      closing: its EventFileWriter, which is going to be closed.
    """

    def __init__(self, writer: Any, closing: Any) -> None:
        self._writer = writer
        self._logdir: str = closing.get_logdir()
        self._how = (closing._max_queue, closing._flush_secs)

    def get_logdir(self) -> str:
        """The directory of the event files."""
        return self._logdir

    def add_event(self, event: Any) -> None:
        """Writes an event to a new file."""
        writer = self._writer
        with _opening:
            if writer.event_writer is self:
                # Files are named by the second, and one of the same name would be overwritten. TensorBoard reads them
                # in the order of their names.
                suffix = f".{next(_reopened):06}"
                writer.event_writer = event_file_writer.EventFileWriter(self._logdir, *self._how, suffix)
        writer.event_writer.add_event(event)

    def flush(self) -> None:
        """Does nothing: what was written is in the file that was closed."""

    def close(self) -> None:
        """Does nothing: it is closed."""

    def reopen(self) -> None:
        """Does nothing yet: the next event opens a file."""


def session_opens(session: Any) -> None:
    """Takes note that a session's hooks are going to write.

    Args:
      session: object with the list `_hooks`, some of which have a `_summary_writer`.
    """
    with _opening:
        _open_sessions.add(session)


def session_closed(session: Any) -> None:
    """Closes the event files that the session's hooks have written, and nobody else's session writes.

    A writer that isn't TensorFlow's for the directory but the program's own is flushed. What goes wrong is logged.
    """
    with _opening:
        _open_sessions.discard(session)
        others = list(_open_sessions)
    in_use = {id(writer) for other in others for writer in _writers(other._hooks)}
    for writer in {id(writer): writer for writer in _writers(session._hooks)}.values():
        _complete(writer, used_by_others=id(writer) in in_use)


def _complete(writer: Any, used_by_others: bool) -> None:
    try:
        hand_over(writer)
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
        logging.error("The hook %r doesn't tell its _summary_writer: %r", hook, error)
        return None


def _is_shared(writer: Any) -> bool:
    """Whether a writer is the one that TensorFlow keeps for its directory."""
    return any(cached is writer for cached in list(writer_cache.FileWriterCache._cache.values()))


def _close_file(writer: Any) -> bool:
    """Closes the file of a writer that can be written to all the same. False if it isn't known how."""
    open_file = writer.event_writer
    if type(open_file) is not event_file_writer.EventFileWriter or writer._closed:
        return False
    # First this: who writes from now on goes to the next file.
    writer.event_writer = ClosedEventFile(writer, open_file)
    open_file.close()
    return True
