"""What to change about functions that TensorFlow traces: traces that come again, calls that aren't lifted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from fastsup.profile.advice.cost import Cost
from fastsup.profile.numbers.quantities import duration
from fastsup.profile.numbers.rows import ProfileRows, Row
from fastsup.profile.recording.phases import BY_TENSORFLOW, INPUT_TRACES, LIFTING, TRACING
from fastsup.profile.recording.statistics import RUNTIME

__all__ = ["costs_of_functions"]


def _traces(report: ProfileRows) -> int:
    """The number of traces of functions, without those of tf.data."""
    return sum(row.times.calls for row in report.rows if row.phase == TRACING and row.detail != INPUT_TRACES)


def costs_of_functions(report: ProfileRows) -> Iterable[Cost]:
    """The costs of functions that the program can change.

    Args:
      report: the report.
    """
    # The detail of a first trace is the function's name alone.
    again = [row for row in report.rows if row.phase == TRACING and ": " in row.detail and row.detail != INPUT_TRACES]
    if again:
        by_function: dict[str, list[Row]] = defaultdict(list)
        for row in again:
            by_function[row.detail.partition(": ")[0]].append(row)
        worst, of_worst = max(by_function.items(), key=lambda item: sum(row.times.total_ns for row in item[1]))
        times = sum(row.times.calls for row in again)
        of_it = sum(row.times.calls for row in of_worst)
        lifting = sum(row.times.total_ns for row in report.rows if row.phase == LIFTING)
        reasons = list(dict.fromkeys(row.detail.partition(": ")[2] for row in of_worst))
        yield Cost(
            "tracing again",
            sum(row.times.total_ns for row in again) + lifting * times // max(_traces(report), 1),
            f"{times} of {_traces(report)} traces are of functions that had been traced. {of_it} of them are of {worst}"
            f": {'; '.join(reasons[:2])}{'; ...' if len(reasons) > 2 else ''}. Pass tensors of one shape and dtype (a "
            "dataset's drop_remainder=True leaves out the last batch of an epoch), tensors in place of Python's "
            "numbers, and make functions and models once.",
        )
    elsewhere = [row for row in report.rows if row.phase == RUNTIME and row.detail.startswith(BY_TENSORFLOW)]
    if elsewhere:
        costliest = max(elsewhere, key=lambda row: row.times.total_ns)
        total, calls = sum(row.times.total_ns for row in elsewhere), sum(row.times.calls for row in elsewhere)
        reason = costliest.detail.removeprefix(BY_TENSORFLOW).removeprefix(": ")
        yield Cost(
            "what TensorFlow runs in place of fastsup.function",
            total,
            f"{duration(total / calls)} for each of {calls} calls" + (f": {reason}." if reason else "."),
        )
