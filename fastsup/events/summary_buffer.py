"""Summaries on their way to an event file.

A FileWriter hands each event to a thread of its own, through a queue of ten: waking it up, and sharing the
interpreter's lock with it, costs a short step's time many times over. Hooks that write often collect their summaries
here, with the times at which they were made, and write them together into the file's buffer, as the thread would.
"""

from __future__ import annotations

import time
import weakref
from typing import Any

from tensorflow.core.util import event_pb2
from tensorflow.python.summary.writer import event_file_writer
from tensorflow.python.summary.writer import writer as tf_writer

from fastsup.core.recorder import span_here

_LIMIT = 256
_MAX_AGE_SECS = 1.0


class EventBuffer:
    """Summaries for one FileWriter.

    Args:
      writer: the `tf.compat.v1.summary.FileWriter`.
    """

    def __init__(self, writer: Any) -> None:
        self._writer = weakref.ref(writer)
        self._summaries: list[tuple[Any, Any, float]] = []
        self._handed_over = 0.0

    def add(self, summary: Any, step: Any) -> None:
        """Adds a summary. It goes to the writer at once, unless others went there less than a second ago.

        Args:
          summary: a Summary proto, or one as bytes; or a pair of a tag and a number.
          step: the global step it is for.
        """
        with span_here("summary"):
            now = time.time()
            self._summaries.append((summary, step, now))
            if not 0 <= now - self._handed_over < _MAX_AGE_SECS or len(self._summaries) >= _LIMIT:
                self.hand_over()

    def hand_over(self) -> None:
        """Gives what was collected to the writer."""
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
            open_file = writer.event_writer
            if number < last and _has_written_all(open_file):
                open_file._ev_writer.WriteEvent(event)
            else:
                # The thread flushes the file when it is time for that, and it gets something.
                writer.add_event(event)
        self._handed_over = summaries[last][2]


def _has_written_all(open_file: Any) -> bool:
    """Whether an event may be written to a file without its thread: nothing waits for that, which would come first."""
    return (
        type(open_file) is event_file_writer.EventFileWriter
        and not open_file._closed
        and not open_file._event_queue._queue
    )


def _fill(proto: Any, summary: Any, seen_tags: set[str]) -> None:
    if isinstance(summary, bytes):
        proto.ParseFromString(summary)
    else:
        proto.CopyFrom(summary)
    # As the writer's add_summary() does: a tag's metadata is written once.
    for value in proto.value:
        if value.HasField("metadata"):
            if value.tag in seen_tags:
                value.ClearField("metadata")
            else:
                seen_tags.add(value.tag)


_buffers: weakref.WeakKeyDictionary[Any, EventBuffer] = weakref.WeakKeyDictionary()


def buffer_for(writer: Any) -> EventBuffer | None:
    """The buffer that all hooks with this writer share; None for a writer of somebody else's making."""
    if type(writer) is not tf_writer.FileWriter or "add_summary" in vars(writer):
        return None
    buffer = _buffers.get(writer)
    if buffer is None and type(getattr(writer, "_seen_summary_tags", None)) is set:
        buffer = _buffers[writer] = EventBuffer(writer)
    return buffer


def hand_over(writer: Any) -> None:
    """Gives the writer what hooks have collected for it: before anything else is written, to keep the order."""
    buffer = _buffers.get(writer) if type(writer) is tf_writer.FileWriter else None
    if buffer is not None:
        buffer.hand_over()
