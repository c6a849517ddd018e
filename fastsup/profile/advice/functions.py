"""What to change about functions that TensorFlow traces: traces that come again, calls that aren't lifted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from fastsup.profile.advice.cost import Cost
from fastsup.profile.numbers.quantities import duration
from fastsup.profile.numbers.rows import ProfileRows, Row
from fastsup.profile.recording.phases import BY_TENSORFLOW, INPUT_TRACES, LIFTING, MADE_AGAIN, TRACING
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
    yield from _traced_again(report, [row for row in again if not row.detail.endswith(MADE_AGAIN)])
    yield from _made_again(report, [row for row in again if row.detail.endswith(MADE_AGAIN)])
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


def _traced_again(report: ProfileRows, rows: list[Row]) -> Iterable[Cost]:
    """The cost of traces for other arguments."""
    if not rows:
        return
    worst, of_worst = _worst(rows)
    times, of_it = (sum(row.times.calls for row in some) for some in (rows, of_worst))
    reasons = list(dict.fromkeys(row.detail.partition(": ")[2] for row in of_worst))
    yield Cost(
        "tracing again",
        _with_lifting(report, rows),
        f"{times} of {_traces(report)} traces are of functions that had been traced for other arguments. {of_it} of "
        f"them are of {worst}: {'; '.join(reasons[:2])}{'; ...' if len(reasons) > 2 else ''}. Pass tensors of one "
        "shape and dtype (a dataset's drop_remainder=True leaves out the last batch of an epoch), and tensors in place "
        "of Python's numbers.",
    )


def _made_again(report: ProfileRows, rows: list[Row]) -> Iterable[Cost]:
    """The cost of traces of functions that were made again."""
    if not rows:
        return
    worst, of_worst = _worst(rows)
    times, of_it = (sum(row.times.calls for row in some) for some in (rows, of_worst))
    yield Cost(
        "tracing functions that are made again",
        _with_lifting(report, rows),
        f"{times} of {_traces(report)} traces, {of_it} of them of {worst}: each new model, and each compile(), "
        "accelerate() or tf.function(), makes new functions, which are traced once. Where models and functions can be "
        "made once, that saves it.",
    )


def _worst(rows: list[Row]) -> tuple[str, list[Row]]:
    """The function whose traces take longest, and its rows."""
    by_function: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_function[row.detail.partition(": ")[0]].append(row)
    return max(by_function.items(), key=lambda item: sum(row.times.total_ns for row in item[1]))


def _with_lifting(report: ProfileRows, rows: list[Row]) -> int:
    """The nanoseconds of traces, with their part of the lifting that follows traces."""
    lifting = sum(row.times.total_ns for row in report.rows if row.phase == LIFTING)
    times = sum(row.times.calls for row in rows)
    return sum(row.times.total_ns for row in rows) + lifting * times // max(_traces(report), 1)
