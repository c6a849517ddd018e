"""Buffers the summaries of hooks that write often, and closes a session's event files with the session."""

from __future__ import annotations

import functools
import os
import threading
import time
import weakref
from collections.abc import Iterable
from itertools import count
from typing import Any

from tensorflow.core.util import event_pb2
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.summary.writer import event_file_writer, writer_cache
from tensorflow.python.summary.writer import writer as tf_writer

from fastsup.core.probe import callback_part_here

# Buffers of summaries. Hooks that write often collect their summaries, and write them to the event file together.
#
# A FileWriter passes each event to its own thread, through a queue of ten events. Waking that thread, and sharing
# the GIL with it, takes many times as long as a short step. A buffer keeps the summaries with their times,
# and writes them into the file's own buffer without waking the thread. Through FileWriterCache, the program uses the
# same FileWriter. The program's events come after earlier buffered ones, and when it flushes or closes the writer, the
# buffered summaries are in the file.

_LIMIT = 256
_MAX_AGE_SECS = 1.0
# The buffer is written before any of these FileWriter methods runs. `add_summary` and `add_graph` call `_add_event`.
_AFTER_BUFFERED = ("_add_event", "add_event", "close", "flush")


class EventBuffer:
    """The buffered summaries of one FileWriter."""

    def __init__(self, writer: Any) -> None:
        self._writer = weakref.ref(writer)
        self._summaries: list[tuple[Any, Any, float]] = []
        self._flushed = 0.0

    def add(self, summary: Any, step: Any) -> None:
        """Adds a Summary, a serialized one, or a tag with a number. Flushes if the last flush was over a second ago."""
        with callback_part_here("summary"):
            now = time.time()
            self._summaries.append((summary, step, now))
            if not 0 <= now - self._flushed < _MAX_AGE_SECS or len(self._summaries) >= _LIMIT:
                self.flush()

    def flush(self) -> None:
        """Writes the buffered summaries."""
        summaries, self._summaries = self._summaries, []
        writer = self._writer()
        if writer is None or not summaries:
            return
        last = len(summaries) - 1
        for number, (summary, step, wall_time) in enumerate(summaries):
            event = event_pb2.Event(wall_time=wall_time, step=int(step))
            if isinstance(summary, tuple):
                tag, value = summary
                event.summary.value.add(tag=tag, simple_value=value)
            else:
                _fill(event.summary, summary, writer._seen_summary_tags)
            event_writer = writer.event_writer
            if number < last and _is_idle(event_writer):
                event_writer._ev_writer.WriteEvent(event)
            else:
                # The last event goes through the thread, which flushes the file at intervals.
                writer.add_event(event)
        self._flushed = summaries[last][2]


def _is_idle(event_writer: Any) -> bool:
    """Returns True if the thread's queue is empty, so that an event that skips the thread keeps its place."""
    return (
        type(event_writer) is event_file_writer.EventFileWriter
        and not event_writer._closed
        and not event_writer._event_queue._queue
    )


def _fill(proto: Any, summary: Any, seen_tags: set[str]) -> None:
    if isinstance(summary, bytes):
        proto.ParseFromString(summary)
    else:
        proto.CopyFrom(summary)
    # Write a tag's metadata once, as `FileWriter.add_summary` does.
    for value in proto.value:
        if value.HasField("metadata"):
            if value.tag in seen_tags:
                value.ClearField("metadata")
            else:
                seen_tags.add(value.tag)


def _call_after_buffered(writer_of: weakref.ref[Any], name: str, *args: Any, **kwargs: Any) -> Any:
    writer = writer_of()
    if writer is None:
        return None
    flush_summaries(writer)
    return getattr(type(writer), name)(writer, *args, **kwargs)


_buffers: weakref.WeakKeyDictionary[Any, EventBuffer] = weakref.WeakKeyDictionary()


def buffer_for(writer: Any) -> EventBuffer | None:
    """Returns the buffer that all hooks with a writer share, or None if it isn't TensorFlow's own FileWriter."""
    if type(writer) is not tf_writer.FileWriter or "add_summary" in vars(writer):
        return None
    buffer = _buffers.get(writer)
    if buffer is None and type(getattr(writer, "_seen_summary_tags", None)) is set:
        buffer = _buffers[writer] = EventBuffer(writer)
        for name in _AFTER_BUFFERED:
            # A method that the program replaced remains the program's.
            vars(writer).setdefault(name, functools.partial(_call_after_buffered, weakref.ref(writer), name))
    return buffer


def flush_summaries(writer: Any) -> None:
    """Writes the summaries that hooks have buffered for a writer. Called before other events, to keep the order."""
    buffer = _buffers.get(writer) if type(writer) is tf_writer.FileWriter else None
    if buffer is not None:
        buffer.flush()


# The lifecycle of summary writers. A session's event files are closed with it, and the next event opens another file.
#
# TensorFlow keeps one FileWriter per directory in its FileWriterCache and never closes it, so each directory costs a
# thread and two file descriptors. Here, the writer stays in the cache, and only its file is closed.

_open_sessions: weakref.WeakSet[Any] = weakref.WeakSet()
_of_parent: weakref.WeakSet[Any] = weakref.WeakSet()
_reopened = count(1)
# The lock is reentrant, because garbage collection may close a session while this thread holds the lock.
_lock = threading.RLock()


class ClosedEventFile:
    """Replaces the EventFileWriter of a FileWriter while its file is closed. The next event opens another file."""

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
                # TensorFlow names files by the second, and overwrites a file with the same name. TensorBoard reads the
                # files in the order of their names.
                suffix = f".{next(_reopened):06}"
                writer.event_writer = event_file_writer.EventFileWriter(self._logdir, *self._queue_options, suffix)
        writer.event_writer.add_event(event)

    def flush(self) -> None:
        """Does nothing, because the closed file is complete."""

    def close(self) -> None:
        """Does nothing, because the file is already closed."""

    def reopen(self) -> None:
        """Does nothing, because the next event opens a file."""


def _leave_to_parent() -> None:
    """Leaves event files to the parent, in a child of `os.fork()`, which has no threads that write them."""
    global _lock
    _lock = threading.RLock()
    _of_parent.update(_open_sessions)
    _open_sessions.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


def register_session(session: Any) -> None:
    """Registers a session whose hooks write events. Its event files stay open until `close_writers`."""
    with _lock:
        _open_sessions.add(session)


def close_writers(session: Any) -> None:
    """Closes the event files of a session's hooks, except files that another registered session writes.

    Flushes a program's own writer, which isn't in TensorFlow's cache. Logs errors. A child of `os.fork()` doesn't
    change the files of its parent's sessions.
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
    """Closes a writer's file. The writer stays usable. Returns False for a writer of another class, or a closed one."""
    event_writer = writer.event_writer
    if type(event_writer) is not event_file_writer.EventFileWriter or writer._closed:
        return False
    # Replace the writer before the file is closed, because another thread's event must go to the next file.
    writer.event_writer = ClosedEventFile(writer, event_writer)
    event_writer.close()
    return True
