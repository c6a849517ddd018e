"""The profile as summaries. TensorBoard shows the costs as curves over the steps, and the table as text."""

from __future__ import annotations

import itertools
import os
import re
import socket
import time
from collections.abc import Iterator
from typing import Any

from fastsup.profile.recording.phases import BETWEEN
from fastsup.profile.recording.statistics import RUNTIME, SESSION
from fastsup.profile.report import Report, Row
from fastsup.profile.table import as_text

__all__ = ["ProfileSummaries"]

_TAG = "profile"
# Characters that the name of a series can't contain.
_NOT_IN_A_TAG = re.compile(r"[^\w./-]+")

_files = itertools.count()

_Key = tuple[str, str, str, str]


def _key(row: Row) -> _Key:
    return row.session, row.name, row.phase, row.detail


class ProfileSummaries:
    """Writes reports of one profiler into an event file.

    Each report is a point of the curves, at the number of steps that the profiler has recorded. Costs cover the steps
    since the last report, and percentiles cover all steps.

    Args:
      directory: directory of the event file, which is created if necessary. It may be a path such as "gs://...".

    Raises:
      ImportError: If TensorFlow, which writes the file, isn't installed.
      tf.errors.OpError: If the directory or the file can't be created.
    """

    def __init__(self, directory: str) -> None:
        try:
            from tensorflow.core.util import event_pb2
            from tensorflow.python.lib.io import file_io, tf_record
        except ImportError as error:
            raise ImportError(
                "Summaries require TensorFlow, which isn't installed: pip install 'fastsup[cpu]'."
            ) from error
        if not file_io.is_directory(directory):
            file_io.recursive_create_dir(directory)
        # TensorFlow's EventsWriter ignores failed writes, and the thread of its FileWriter would outlive the profile.
        # This writes a file with the same name and records.
        unique = f"{int(time.time()):010}.{socket.gethostname()}.{os.getpid()}.{next(_files)}"
        self._writer = tf_record.TFRecordWriter(os.path.join(directory, f"events.out.tfevents.{unique}"))
        self._writer.write(event_pb2.Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
        self._before: dict[_Key, int] = {}
        self._steps = 0
        self._wall_ns = 0
        self._texts: dict[str, str] = {}

    def write(self, report: Report) -> None:
        """Writes a report. Does nothing if no step has finished since the last one.

        Args:
          report: the report.

        Raises:
          tf.errors.OpError: If the file can't be written.
        """
        if report.steps == self._steps:
            return
        from tensorflow.core.util import event_pb2

        event = event_pb2.Event(wall_time=time.time(), step=report.skipped_steps + report.steps)
        for tag, number in self._numbers(report):
            event.summary.value.add(tag=f"{_TAG}/{tag}", simple_value=number)
        for tag, text in (("table", _as_code(as_text(report))), ("executors", _executors(report))):
            if text and text != self._texts.get(tag):
                self._texts[tag] = text
                _add_text(event.summary, f"{_TAG}/{tag}", text)
        self._before = {_key(row): row.times.total_ns for row in report.rows}
        self._steps, self._wall_ns = report.steps, report.wall_ns
        self._writer.write(event.SerializeToString())
        self._writer.flush()

    def _numbers(self, report: Report) -> Iterator[tuple[str, float]]:
        """Yields the points of the curves: tags and numbers."""
        steps, wall_ns = report.steps - self._steps, report.wall_ns - self._wall_ns
        if wall_ns > 0:
            yield "steps per second", 1e9 * steps / wall_ns
        times = report.step_time
        for name, ns in (("p50", times.p50_ns), ("p95", times.p95_ns), ("p99", times.p99_ns)):
            if ns is not None:
                yield f"step time in us/{name}", ns / 1e3
        sums = {RUNTIME: 0, "hooks": 0, BETWEEN: 0, SESSION: 0}
        costs: dict[str, int] = {}
        for row in report.rows:
            ns = row.times.total_ns - self._before.get(_key(row), 0)
            if row.is_hook:
                sums["hooks"] += ns
                name = _NOT_IN_A_TAG.sub("_", f"{row.name}.{row.phase}")
                costs[name] = costs.get(name, 0) + ns
            elif row.is_step:
                sums[RUNTIME] += ns
            else:
                sums[BETWEEN if row.phase == BETWEEN else SESSION] += ns
        for name, ns in sums.items():
            yield f"us per step/{name}", ns / 1e3 / steps
        for name, ns in costs.items():
            yield f"us per step of hooks/{name}", ns / 1e3 / steps


def _as_code(text: str) -> str:
    """Formats a text as a Markdown code block, which TensorBoard's text tab shows unchanged."""
    return "\n".join(f"    {line}" for line in text.splitlines())


def _executors(report: Report) -> str:
    """Returns a Markdown table of the executors of each session's fetches, or "" if none is known."""
    lines = [
        f"| {part.name} | {', '.join(plan.fetches)} | {plan.executor}{', on trial' if plan.on_trial else ''} |"
        for part in report.sessions
        for plan in part.executors
    ]
    return "\n".join(["| session | fetches | executor |", "|---|---|---|", *lines]) if lines else ""


def _add_text(summary: Any, tag: str, text: str) -> None:
    value = summary.value.add(tag=tag)
    value.metadata.plugin_data.plugin_name = "text"
    value.tensor.dtype = 7  # DT_STRING
    value.tensor.tensor_shape.SetInParent()
    value.tensor.string_val.append(text.encode())
