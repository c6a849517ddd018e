"""Buffers of summaries: hooks that write often collect their summaries, and write them to the event file together.

A FileWriter passes each event to its own thread, through a queue of ten events. Waking that thread, and sharing
the interpreter's lock with it, takes many times as long as a short step. A buffer keeps the summaries with their times,
and writes them into the file's own buffer without waking the thread.

The FileWriter is the program's too, by FileWriterCache. What the program adds comes after what was buffered before, and
when it flushes the writer or closes it, the buffered summaries are in the file.
"""

from __future__ import annotations

import functools
import time
import weakref
from typing import Any

from tensorflow.core.util import event_pb2
from tensorflow.python.summary.writer import event_file_writer
from tensorflow.python.summary.writer import writer as tf_writer

from fastsup.core.probe import callback_part_here

_LIMIT = 256
_MAX_AGE_SECS = 1.0
# Methods of a FileWriter before which the buffer is written. `_add_event` is that of `add_summary` and `add_graph`.
_AFTER_BUFFERED = ("_add_event", "add_event", "close", "flush")


class EventBuffer:
    """The buffered summaries of one FileWriter.

    Args:
      writer: the `tf.compat.v1.summary.FileWriter`.
    """

    def __init__(self, writer: Any) -> None:
        self._writer = weakref.ref(writer)
        self._summaries: list[tuple[Any, Any, float]] = []
        self._flushed = 0.0

    def add(self, summary: Any, step: Any) -> None:
        """Adds a summary, and flushes the buffer if the last flush was more than a second ago.

        Args:
          summary: a Summary, or a serialised one; or a pair of a tag and a number.
          step: the global step of the summary.
        """
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
    """Returns True if the thread's queue is empty: an event that skips the thread then keeps its place."""
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
    # As in `FileWriter.add_summary`, a tag's metadata is written once.
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
    """Returns the buffer that all hooks with a writer share; None if the writer isn't TensorFlow's own FileWriter."""
    if type(writer) is not tf_writer.FileWriter or "add_summary" in vars(writer):
        return None
    buffer = _buffers.get(writer)
    if buffer is None and type(getattr(writer, "_seen_summary_tags", None)) is set:
        buffer = _buffers[writer] = EventBuffer(writer)
        for name in _AFTER_BUFFERED:
            # One that the program has replaced stays the program's.
            vars(writer).setdefault(name, functools.partial(_call_after_buffered, weakref.ref(writer), name))
    return buffer


def flush_summaries(writer: Any) -> None:
    """Writes the summaries that hooks have buffered for a writer. Called before other events, to keep the order."""
    buffer = _buffers.get(writer) if type(writer) is tf_writer.FileWriter else None
    if buffer is not None:
        buffer.flush()
