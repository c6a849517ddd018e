"""What to change in a Keras program: the costs of its passes, and what a change of each saves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from fastsup.profile.advice.cost import Cost
from fastsup.profile.numbers.quantities import duration
from fastsup.profile.numbers.rows import ProfileRows, Row
from fastsup.profile.recording.phases import INPUT_WAIT, LOGS, OPEN_INPUT, PASS_LOOP, SAVE, TRACING

__all__ = ["advice_on_callback", "costs_of_passes"]

# How many batches an execution has in the advice.
_STEPS_PER_EXECUTION = 10
_PROGRESS_BAR = "ProgbarLogger"


def costs_of_passes(report: ProfileRows) -> Iterable[Cost]:
    """The costs of Keras's passes that the program can change, without those of its callbacks.

    Args:
      report: the report.
    """
    passes = {part.name: part for part in report.sessions if part.is_pass}
    rows: dict[str, list[Row]] = defaultdict(list)
    for row in report.session:
        if row.session in passes:
            rows[row.phase].append(row)

    def sums(*phases: str) -> tuple[int, int]:
        found = [row.times for phase in phases for row in rows[phase]]
        return sum(times.total_ns for times in found), sum(times.calls for times in found)

    batches = sum(part.runs for part in passes.values())
    total, _ = sums(PASS_LOOP, LOGS)
    if total and batches:
        saved = total * (_STEPS_PER_EXECUTION - 1) // _STEPS_PER_EXECUTION
        yield Cost(
            "Keras's own loop",
            total,
            f"{duration(total / batches)} a batch, with the logs for its callbacks. "
            f"compile(steps_per_execution={_STEPS_PER_EXECUTION}) goes through it once in "
            f"{_STEPS_PER_EXECUTION} batches, which saves about {duration(saved)} here; callbacks then see each "
            f"{_STEPS_PER_EXECUTION}th batch.",
        )
    total, times = sums(INPUT_WAIT)
    if total:
        yield Cost(
            "the wait for input",
            total,
            f"{duration(total / times)} a batch, in which the step function waits. "
            "dataset.map(..., num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE) makes batches meanwhile; "
            "cache() makes them once. Data in memory is best passed as arrays.",
        )
    total, times = sums(TRACING)
    if total:
        yield Cost(
            "tracing",
            total,
            f"{times} traces, {duration(total / times)} each. A function is traced again for a batch of another shape "
            "(drop_remainder=True leaves out the last one of an epoch), and for each model and after each compile().",
        )
    total, times = sums(OPEN_INPUT)
    if total:
        yield Cost(
            "opening the input",
            total,
            f"{times} times, {duration(total / times)} each: Keras makes an iterator for each epoch. Fewer and longer "
            "epochs save it; so does a dataset with repeat(), with steps_per_epoch.",
        )


def advice_on_callback(owner: str, worst: Row, total_ns: int, calls: int) -> str:
    """What to do about a callback of a pass.

    Args:
      owner: name of the callback.
      worst: its row that takes the most time.
      total_ns: nanoseconds of the callback.
      calls: how often that row's method was called.

    Returns:
      Sentences, or "".
    """
    if owner == _PROGRESS_BAR:
        return f"verbose=2 prints a line for each epoch in its place, and saves nearly all of its {duration(total_ns)}."
    if worst.phase == SAVE:
        return f"It saves {calls} times, {duration(worst.times.mean_ns)} each: save less often (save_freq)."
    if "batch" in worst.phase:
        return (
            f"It is called for {calls} batches: if every {_STEPS_PER_EXECUTION}th is enough, that saves "
            f"{duration(worst.times.total_ns * (_STEPS_PER_EXECUTION - 1) // _STEPS_PER_EXECUTION)}."
        )
    return ""
