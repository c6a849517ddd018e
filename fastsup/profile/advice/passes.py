"""Advice for a Keras program: the costs of its passes, and the time that each change saves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fastsup.profile.numbers import ProfileRows, Row, SessionPart, duration
from fastsup.profile.recording.phases import (
    BATCH_CALLS,
    BY_PYTORCH,
    BY_TENSORFLOW_EAGERLY,
    BY_TENSORFLOW_FUNCTION,
    INPUT_TRACES,
    INPUT_WAIT,
    KERAS_STEPS,
    LOGS,
    OPEN_INPUT,
    PASS_EPOCHS,
    PASS_FUNCTIONS,
    PASS_LOOP,
    SAVE,
    WEIGHTS,
)
from fastsup.profile.recording.statistics import SESSION

__all__ = ["Cost", "advice_on_callback", "costs_of_passes"]


class Cost(NamedTuple):
    """A cost that the program can change.

    Attributes:
      name: its name, as the object of "Look first at".
      total_ns: its nanoseconds.
      text: the reason and the remedy.
    """

    name: str
    total_ns: int
    text: str


# Number of batches per execution in the advice.
_STEPS_PER_EXECUTION = 10
# The executors of an accelerated model's functions.
_LIFTED = {"inline", "single_threaded", "thread_pool"}
# If a callback's mean time is more than this many times its 95th percentile, it does its work in only a few calls.
_SKEW = 5
# Typical nanoseconds to lift a function.
LIFTING_NS = 100_000_000
_CHECKPOINT, _PROGRESS_BAR, _TENSORBOARD = "ModelCheckpoint", "ProgbarLogger", "TensorBoard"


def costs_of_passes(report: ProfileRows) -> Iterable[Cost]:
    """Yields the costs of Keras's passes that the program can change, without those of its callbacks."""
    every_pass = [part for part in report.sessions if part.is_pass]
    # An evaluation by a callback counts as the callback's cost.
    passes = [part for part in every_pass if part.within is None or part.within[1] == SESSION]
    rows = _rows_of(report, passes)
    _, opened_ns, times_opened, is_of_arrays = _opening(rows)
    # An accelerated model's calls are also cheaper in these passes.
    every_row = _rows_of(report, every_pass)
    spared, spared_outside = _spared(report, every_row), _spared(report, rows)
    if spared.ns:
        # The savings include Keras's work in these passes, so it isn't advised on again.
        passes = [part for part in passes if not _is_single(part)]
    loops = [part for part in passes if part.kind.rpartition(".")[2] not in BATCH_CALLS]
    yield from _of_loop(report, _rows_of(report, passes), sum(part.runs for part in loops))
    if spared.ns:
        yield _of_calls(spared, spared.ns - spared_outside.ns)
    yield from _run_eagerly(report, every_row)
    total, times = _sums(_rows_of(report, passes), INPUT_WAIT)
    if total:
        yield Cost(
            "the wait for input",
            total,
            f"{duration(total / times)} a batch, in which the step function waits. A keras.utils.PyDataset prepares "
            "batches in the background with more workers (workers=4); a tf.data.Dataset with map(..., "
            "num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE), and cache() prepares them once.",
        )
    if times_opened > 1 and not (spared.ns and is_of_arrays):
        yield Cost(
            "opening and ending the input",
            opened_ns,
            f'{times_opened} times, {duration(opened_ns / times_opened)} each ("open input", "between epochs", '
            '"tracing of tf.data\'s functions"): Keras creates an iterator for each epoch, and a dataset from arrays '
            "for each call. Fewer and longer epochs save this time; so does a dataset with repeat(), with "
            "steps_per_epoch.",
        )


def _rows_of(report: ProfileRows, passes: Iterable[SessionPart]) -> list[Row]:
    names = {part.name for part in passes}
    return [row for row in report.session if row.session in names]


def _opening(rows: Iterable[Row]) -> tuple[int, int, int, bool]:
    """Returns the cost of opening and closing inputs.

    Returns:
      The nanoseconds; these without single stalls; the number of times; and True if Keras creates inputs from arrays.
    """
    opened = [row for row in rows if row.phase in (OPEN_INPUT, PASS_EPOCHS) or row.detail == INPUT_TRACES]
    is_of_arrays = any(row.detail == INPUT_TRACES for row in opened)
    total = sum(row.times.total_ns for row in opened)
    return total, sum(map(_without_stalls, opened)), _sums(opened, OPEN_INPUT)[1], is_of_arrays


def _without_stalls(row: Row) -> int:
    """Returns the nanoseconds of a row as if each call took the median, to exclude one-time stalls."""
    times = row.times
    return times.total_ns if times.p50_ns is None else min(times.total_ns, int(times.p50_ns * times.calls))


def _sums(rows: Iterable[Row], *phases: str) -> tuple[int, int]:
    """Returns the nanoseconds and calls of the rows with some phases."""
    found = [row.times for row in rows if row.phase in phases]
    return sum(times.total_ns for times in found), sum(times.calls for times in found)


def _of_loop(report: ProfileRows, rows: Iterable[Row], batches: int) -> Iterable[Cost]:
    total, _ = _sums(rows, PASS_LOOP, LOGS)
    if total and batches:
        executors = {report.executor_of(row) for row in rows if row.phase in PASS_FUNCTIONS}
        compiled = (
            " With compile(jit_compile=True), an accelerated model runs many batches per call if no callback inspects "
            f"each, which saves nearly all of these {duration(total)}, if a trial finds it faster."
        )
        saved = total * (_STEPS_PER_EXECUTION - 1) // _STEPS_PER_EXECUTION
        executions = (
            f"compile(steps_per_execution={_STEPS_PER_EXECUTION}) goes through it once per "
            f"{_STEPS_PER_EXECUTION} batches, which saves about {duration(saved)} here; callbacks then see each "
            f"{_STEPS_PER_EXECUTION}th batch.{compiled if executors & _LIFTED else ''}"
        )
        if executors == {BY_PYTORCH}:
            executions = "Larger batches go through it less often: Keras has no steps_per_execution for PyTorch."
        text = f"{duration(total / batches)} a batch, with the logs for its callbacks. {executions}"
        yield Cost("Keras's own loop", total, text)


class _Spared(NamedTuple):
    """The work that an accelerated model saves.

    Attributes:
      calls: calls of step functions by TensorFlow.
      calls_ns: the time saved in these calls, in nanoseconds.
      predict_ns: the time saved in Keras's own work in calls of `predict` with one batch each.
      opened_ns: nanoseconds of creating inputs from arrays, without single stalls.
      all_opened_ns: the same with stalls, as in the rows.
      functions: number of functions to accelerate.
    """

    calls: int
    calls_ns: int
    predict_ns: int
    opened_ns: int
    all_opened_ns: int
    functions: int

    @property
    def ns(self) -> int:
        """Total savings in nanoseconds, or 0 if TensorFlow calls no step function."""
        return self.calls_ns and self.calls_ns + self.predict_ns + self.opened_ns


def _is_single(part: SessionPart) -> bool:
    """Returns True for passes of `predict` that have one batch each."""
    return part.role == "predict" and part.runs <= part.sessions


def _spared(report: ProfileRows, rows: list[Row]) -> _Spared:
    """Returns the time that an accelerated model saves in the rows of passes."""
    # For one batch, an accelerated model's predict only calls the function, and skips Keras's other work.
    single = {part.name for part in report.sessions if part.is_pass and _is_single(part)}
    of_single = [row for row in rows if row.session in single and not row.is_hook]
    predict_ns = sum(_without_stalls(row) for row in of_single if row.phase not in PASS_FUNCTIONS)
    all_opened_ns, opened_ns, _, is_of_arrays = _opening([row for row in rows if row.session not in single])
    by_tensorflow = [row for row in rows if report.executor_of(row) == BY_TENSORFLOW_FUNCTION]
    total, calls = _sums(by_tensorflow, *KERAS_STEPS)
    # On a busy machine, the measurement may exceed a whole call.
    calls_ns = min(int(report.call_ns * calls), total * 9 // 10)
    functions = len({row.phase for row in by_tensorflow})
    # Keras creates a dataset from arrays, while an accelerated model copies the rows.
    return _Spared(calls, calls_ns, predict_ns, *((opened_ns, all_opened_ns) if is_of_arrays else (0, 0)), functions)


def _of_calls(spared: _Spared, in_callbacks: int) -> Cost:
    """Returns the cost of TensorFlow's calls to model functions."""
    parts = [
        f"{duration(spared.calls_ns)} of TensorFlow's calls of the step function, "
        f"about {duration(spared.calls_ns / spared.calls)} of each of {spared.calls}, measured on this machine"
    ]
    if spared.predict_ns:
        parts.append(f"{duration(spared.predict_ns)} of Keras's own work in calls of predict with one batch each")
    if spared.opened_ns:
        parts.append(
            f"{duration(spared.opened_ns)} of the {duration(spared.all_opened_ns)} in which Keras creates datasets "
            'and iterators from arrays (the rows "open input", "between epochs" and "tracing of tf.data\'s functions")'
        )
    text = f"at least {duration(spared.ns)}: {', and '.join(parts)}"
    if in_callbacks:
        text += f". {duration(in_callbacks)} of it is in the callbacks' evaluations, and is also counted there"
    is_short = spared.ns < LIFTING_NS * spared.functions
    text += (
        ". Accelerating a model takes 0.1 to 0.5 s per function, once"
        f"{': it pays off in a longer run' if is_short else ''}. `python -m fastsup run --keras SCRIPT` "
        "does it without an edit. Steps of many operations save more: use --compare."
    )
    return Cost("the time that fastsup.keras.accelerate(model) saves", spared.ns, text)


def _run_eagerly(report: ProfileRows, rows: list[Row]) -> Iterable[Cost]:
    """Yields the cost of running model functions in Python."""
    eagerly = [row for row in rows if BY_TENSORFLOW_EAGERLY in report.executor_of(row)]
    total, calls = _sums(eagerly, *PASS_FUNCTIONS)
    if calls:
        yield Cost(
            "running eagerly",
            total,
            f"{duration(total / calls)} a batch: Python runs each operation (run_eagerly=True). Without that setting, "
            "TensorFlow runs a graph of the step, which is many times faster.",
        )


def advice_on_callback(owner: str, worst: Row, total_ns: int, calls: int) -> str:
    """Returns the advice for a callback of a pass."""
    if owner == _PROGRESS_BAR:
        return f"verbose=2 prints a line for each epoch instead, and saves nearly all of its {duration(total_ns)}."
    if owner == _TENSORBOARD:
        its_argument = 'update_freq="epoch"' if "batch" in worst.phase else "histogram_freq=0"
        return f"{its_argument} saves most of these {duration(worst.times.total_ns)}, unless it is already set."
    times = worst.times
    if times.p95_ns is not None and times.max_ns is not None and _SKEW * times.p95_ns < times.mean_ns and calls > 1:
        return (
            f"A few of its {calls} calls take nearly all of it, up to {duration(times.max_ns)} each: half as many "
            f"would save {duration(times.total_ns // 2)}."
        )
    saved = duration(times.total_ns * (_STEPS_PER_EXECUTION - 1) // _STEPS_PER_EXECUTION)
    if worst.phase == SAVE:
        argument = " (save_freq=N, in batches)" if owner == _CHECKPOINT else ""
        return (
            f"It saves {calls} times, {duration(worst.times.mean_ns)} each: half as often{argument} saves "
            f"{duration(worst.times.total_ns // 2)}."
        )
    if worst.phase == WEIGHTS:
        return (
            f"It reads the weights {calls} times, {duration(worst.times.mean_ns)} each: reading them every "
            f"{_STEPS_PER_EXECUTION}th time saves {saved}."
        )
    if "batch" in worst.phase:
        return f"It is called for {calls} batches: if every {_STEPS_PER_EXECUTION}th is enough, that saves {saved}."
    if calls > 1:
        half = duration(worst.times.total_ns // 2)
        return f"It is called {calls} times, {duration(worst.times.mean_ns)} each: every second time saves {half}."
    return ""
