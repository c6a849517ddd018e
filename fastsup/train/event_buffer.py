"""Scalars on their way to an event file.

A FileWriter hands each event to a thread of its own, and waking it up costs a short step's time many times over. A
hook that writes often collects its scalars here and hands them over together, with the times at which they were made.
"""

from __future__ import annotations

import time
import weakref
from typing import Any

from tensorflow.core.framework import summary_pb2
from tensorflow.core.util import event_pb2
from tensorflow.python.summary.writer import writer as tf_writer

_LIMIT = 256
_MAX_AGE_SECS = 1.0


class EventBuffer:
    """Scalars for one FileWriter.

    Args:
      writer: the `tf.compat.v1.summary.FileWriter`.
    """

    def __init__(self, writer: Any) -> None:
        self._writer = weakref.ref(writer)
        self._scalars: list[tuple[str, float, int, float]] = []
        self._handed_over = 0.0

    def add(self, tag: str, value: float, step: int) -> None:
        """Adds a scalar. It goes to the writer at once, unless others went there less than a second ago."""
        now = time.time()
        self._scalars.append((tag, value, step, now))
        if not 0 <= now - self._handed_over < _MAX_AGE_SECS or len(self._scalars) >= _LIMIT:
            self.hand_over()

    def hand_over(self) -> None:
        """Gives what was collected to the writer."""
        scalars, self._scalars = self._scalars, []
        writer = self._writer()
        if writer is None:
            return
        for tag, value, step, wall_time in scalars:
            summary = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=tag, simple_value=value)])
            writer.add_event(event_pb2.Event(wall_time=wall_time, step=step, summary=summary))
        if scalars:
            self._handed_over = scalars[-1][3]


_buffers: weakref.WeakKeyDictionary[Any, EventBuffer] = weakref.WeakKeyDictionary()


def buffer_for(writer: Any) -> EventBuffer | None:
    """The buffer that all hooks with this writer share; None for a writer of somebody else's making."""
    if type(writer) is not tf_writer.FileWriter or "add_summary" in vars(writer):
        return None
    if writer not in _buffers:
        _buffers[writer] = EventBuffer(writer)
    return _buffers[writer]


def hand_over(writer: Any) -> None:
    """Gives the writer what hooks have collected for it: before anything else is written, to keep the order."""
    buffer = _buffers.get(writer) if type(writer) is tf_writer.FileWriter else None
    if buffer is not None:
        buffer.hand_over()
