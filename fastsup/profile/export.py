"""A report as JSON and CSV. The schema is described in docs/profiling.md."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict
from typing import Any

from fastsup.profile.report import Report, Row

__all__ = ["SCHEMA", "as_csv", "as_dict", "as_json"]

# Moves when a field changes its meaning or goes away; not when one is added.
SCHEMA = 1
_ROW_FIELDS = ("owner", "phase", "kind", "basis", "calls", "total_ns", "share", "mean_ns", "p50_ns", "p95_ns", "p99_ns",
               "max_ns", "max_step")  # fmt: skip


def _row(row: Row) -> dict[str, Any]:
    values = {
        "owner": row.owner,
        "phase": row.phase,
        "kind": "hook" if row.is_hook else "session",
        "basis": row.basis,
        "share": row.share,
        **asdict(row.times),
    }
    return {name: values[name] for name in _ROW_FIELDS}


def as_dict(report: Report) -> dict[str, Any]:
    """The report as what JSON knows."""
    return {
        "schema": SCHEMA,
        "steps": report.steps,
        "skipped_steps": report.skipped_steps,
        "threads": report.threads,
        "wall_ns": report.wall_ns,
        "profiler_ns": report.profiler_ns,
        "unaccounted_ns": report.unaccounted_ns,
        "rows": [_row(row) for row in report.rows],
        "step_time": {**asdict(report.step_time), "buckets": [list(bucket) for bucket in report.step_buckets]},
        "advice": report.advice(),
    }


def as_json(report: Report) -> str:
    """The report as JSON."""
    return json.dumps(as_dict(report), indent=1) + "\n"


def as_csv(report: Report) -> str:
    """The rows as CSV, with a header; what has no value is empty. The profiler, the rest and the sum come last."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _ROW_FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_row(row) for row in report.rows)
    for phase, ns in (
        ("profiler", report.profiler_ns),
        ("unaccounted", report.unaccounted_ns),
        ("wall", report.wall_ns),
    ):
        writer.writerow({"owner": "session", "phase": phase, "kind": "sum", "total_ns": ns, "share": report.share(ns)})
    return text.getvalue()
