"""A profile as files: the report as JSON and CSV, and steps as a Chrome trace. See docs/profile-rows.md for schemas."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict
from typing import Any

from fastsup.profile.numbers import SessionPart
from fastsup.profile.recording.recorder import Recorder
from fastsup.profile.report import Report, Row

__all__ = ["SCHEMA", "as_chrome_trace", "as_csv", "as_dict", "as_json"]

# The version is incremented when a field is removed or changes its meaning, but not when one is added.
# 2: one owner and phase may have several rows, which differ in `session` or `detail`.
# 3: `thread`, instead of `owner`, shows a callback's work in its own thread.
SCHEMA = 3
_ROW_FIELDS = ("owner", "phase", "kind", "basis", "calls", "total_ns", "share", "mean_ns", "p50_ns", "p95_ns", "p99_ns",
               "max_ns", "max_step", "session", "detail", "executor", "thread")  # fmt: skip


def _row(report: Report, row: Row) -> dict[str, Any]:
    values = {
        "owner": row.owner,
        "phase": row.phase,
        "kind": "hook" if row.is_hook else "session",
        "basis": row.basis,
        "share": row.share,
        "session": row.session,
        "detail": row.detail,
        "executor": report.executor_of(row),
        "thread": row.thread,
        **asdict(row.times),
    }
    return {name: values[name] for name in _ROW_FIELDS}


def _session(part: SessionPart) -> dict[str, Any]:
    plans = [{**plan._asdict(), "fetches": list(plan.fetches), "feeds": list(plan.feeds)} for plan in part.executors]
    within = None if part.within is None else list(part.within)
    lists = {"asked_executors": list(part.asked_executors), "tensorflow_hooks": list(part.tensorflow_hooks)}
    return {**asdict(part), **lists, "within": within, "executors": plans}


def as_dict(report: Report) -> dict[str, Any]:
    """Returns the report as a dictionary that JSON can represent."""
    return {
        "schema": SCHEMA,
        "steps": report.steps,
        "skipped_steps": report.skipped_steps,
        "threads": report.threads,
        "wall_ns": report.wall_ns,
        "profiler_ns": report.profiler_ns,
        "unaccounted_ns": report.unaccounted_ns,
        "rows": [_row(report, row) for row in report.rows],
        "step_time": {**asdict(report.step_time), "buckets": [list(bucket) for bucket in report.step_buckets]},
        "advice": report.advice(),
        "sessions": [_session(part) for part in report.sessions],
        "head": {**asdict(report.head), "arguments": list(report.head.arguments)},
        "timeline": [{"phase": phase, "total_ns": ns, "times": times} for phase, ns, times in report.timeline],
        "unrecorded_sessions": [f"{opened.kind}, {opened.place}" for opened in report.unrecorded_sessions],
        "functions": [asdict(note) for note in report.functions],
    }


def as_json(report: Report) -> str:
    """Returns the report as JSON text."""
    return json.dumps(as_dict(report), indent=1) + "\n"


def as_csv(report: Report) -> str:
    """Returns the rows as CSV text with a header. The last rows are the profiler, the unaccounted time and the sum."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _ROW_FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_row(report, row) for row in report.rows)
    for phase, ns in (
        ("profiler", report.profiler_ns),
        ("unaccounted", report.unaccounted_ns),
        ("wall", report.wall_ns),
    ):
        writer.writerow({"owner": "session", "phase": phase, "kind": "sum", "total_ns": ns, "share": report.share(ns)})
    return text.getvalue()


def as_chrome_trace(recorder: Recorder) -> str:
    """Returns the spans of a sample of steps, and of the slowest steps, as JSON for chrome://tracing and Perfetto.

    Times are microseconds since the first span.

    Args:
      recorder: the recorder.
    """
    spans = recorder.trace()
    sampled = {span["step"] for span in spans}
    for slow in recorder.slow_steps():
        if slow["step"] not in sampled:
            spans += slow["spans"]
    spans.sort(key=lambda span: (span["start_ns"], -span["duration_ns"]))
    origin = spans[0]["start_ns"] if spans else 0
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "fastsup"}},
    ]
    for thread in sorted({span["thread"] for span in spans}):
        name = {"name": f"thread {thread + 1}"}
        events.append({"name": "thread_name", "ph": "M", "pid": 1, "tid": thread + 1, "args": name})
    for span in spans:
        is_step = span["phase"] == "step"
        events.append(
            {
                "name": f"step {span['step']}" if is_step else f"{span['owner']}: {span['phase']}",
                "cat": "step" if is_step else "session" if span["owner"] == "session" else "hook",
                "ph": "X",
                "ts": (span["start_ns"] - origin) / 1e3,
                "dur": span["duration_ns"] / 1e3,
                "pid": 1,
                "tid": span["thread"] + 1,
                "args": {"step": span["step"]},
            }
        )
    about = {"sampled": f"one step of {recorder.sampled_every}, and the slowest"}
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns", "otherData": about}) + "\n"
