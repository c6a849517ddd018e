"""What to change about functions that TensorFlow traces: traces that come again, calls that aren't lifted."""

from __future__ import annotations

from collections.abc import Iterable

from fastsup.profile.advice.cost import Cost
from fastsup.profile.numbers.quantities import duration
from fastsup.profile.numbers.rows import ProfileRows
from fastsup.profile.recording.phases import BY_TENSORFLOW, INPUT_TRACES, TRACING
from fastsup.profile.recording.statistics import RUNTIME

__all__ = ["costs_of_functions"]


def costs_of_functions(report: ProfileRows) -> Iterable[Cost]:
    """The costs of functions that the program can change.

    Args:
      report: the report.
    """
    # The detail of a first trace is the function's name alone.
    again = [row for row in report.rows if row.phase == TRACING and ": " in row.detail and row.detail != INPUT_TRACES]
    if again:
        worst = max(again, key=lambda row: row.times.total_ns)
        total, times = sum(row.times.total_ns for row in again), sum(row.times.calls for row in again)
        yield Cost(
            "tracing again",
            total,
            f"{times} traces of functions that had been traced, {duration(total / times)} each. The costliest, "
            f"{worst.detail}. Pass tensors of one shape and dtype (a dataset's drop_remainder=True leaves out the last "
            "batch of an epoch), tensors in place of Python's numbers, and make functions and models once.",
        )
    elsewhere = [row for row in report.rows if row.phase == RUNTIME and row.detail.startswith(BY_TENSORFLOW)]
    if elsewhere:
        worst = max(elsewhere, key=lambda row: row.times.total_ns)
        total, calls = sum(row.times.total_ns for row in elsewhere), sum(row.times.calls for row in elsewhere)
        reason = worst.detail.removeprefix(BY_TENSORFLOW).removeprefix(": ")
        yield Cost(
            "what TensorFlow runs in place of fastsup.function",
            total,
            f"{duration(total / calls)} for each of {calls} calls" + (f": {reason}." if reason else "."),
        )
