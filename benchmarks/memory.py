"""Measures whether memory grows, over many steps of one session and over many sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import tensorflow as tf

import fastsup
from benchmarks.contenders import (
    FastsupMonitored,
    FastsupRunLoop,
    FastsupSession,
    Program,
    TensorFlowMonitored,
    TensorFlowSession,
)
from benchmarks.measure import Contender, resident
from benchmarks.programs import sgd, sgd_with_hooks

STEPS = 10_000_000
SESSIONS = 1_000
WARM_UP_STEPS = 200_000
WARM_UP_SESSIONS = 300


@dataclass(frozen=True)
class Growth:
    """Resident memory after the warm-up and at the end, in bytes, and the growth that is allowed."""

    title: str
    before: int
    after: int
    at_most: int | None

    @property
    def grown(self) -> int:
        return self.after - self.before

    @property
    def missed(self) -> bool:
        return self.at_most is not None and self.grown > self.at_most

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "missed": self.missed}


def over_steps(steps: int = STEPS) -> Growth:
    """Measures the memory of a session over many steps of its run_loop, with hooks."""
    contender = FastsupRunLoop(Program(sgd_with_hooks))
    try:
        contender.steps(min(WARM_UP_STEPS, steps))
        before = resident()
        contender.steps(steps)
        return Growth(f"{steps:,} steps of run_loop", before, resident(), 1_000_000)
    finally:
        contender.close()


def over_sessions(
    make: Callable[[Program], Contender], name: str, at_most: int | None, count: int = SESSIONS
) -> Growth:
    """Measures the memory over sessions that are opened, run and closed."""

    def open_and_close(n: int) -> None:
        for _ in range(n):
            contender = make(Program(sgd))
            contender.steps(2)
            contender.close()
            # The cache keeps the writer of each folder, and each session here has another one.
            tf.compat.v1.summary.FileWriterCache.clear()

    open_and_close(min(WARM_UP_SESSIONS, count))
    before = resident()
    open_and_close(count)
    return Growth(f"{count:,} sessions of {name} opened and closed", before, resident(), at_most)


def over_calls(calls: int = STEPS) -> Growth:
    """Measures the memory of a lifted function over many calls."""
    weights = tf.Variable(tf.zeros([10]))
    step = fastsup.function(lambda x: weights.assign_sub(0.1 * (weights - x)), fallback="raise")
    x = tf.ones([10])

    def call(n: int) -> None:
        for _ in range(n):
            step(x)

    call(min(WARM_UP_STEPS, calls))
    before = resident()
    call(calls)
    return Growth(f"{calls:,} calls of fastsup.function", before, resident(), 1_000_000)


def over_functions(
    make: Callable[[Callable[..., Any]], Any], name: str, at_most: int | None, retraces: bool, count: int = SESSIONS
) -> Growth:
    """Measures the memory over functions that are made and dropped, or over one that is traced again and again."""
    weights = tf.Variable(tf.zeros([10]))

    def add(by: Any) -> Any:
        return weights.assign_add(tf.fill([10], tf.cast(by, tf.float32)))

    function = make(add)

    def trace(first: int, n: int) -> None:
        for number in range(first, first + n):
            if retraces:
                function(number)
            else:
                make(lambda: add(1))()

    warm_up = min(WARM_UP_SESSIONS, count)
    trace(0, warm_up)
    before = resident()
    trace(warm_up, count)
    what = "retraces of one" if retraces else "made and dropped:"
    return Growth(f"{count:,} {what} {name}", before, resident(), at_most)


def measurements() -> Iterator[Growth]:
    """Measures all, with TensorFlow's own classes for comparison."""
    yield over_steps()
    yield over_sessions(TensorFlowSession, "tf.compat.v1.Session", None)
    yield over_sessions(FastsupSession, "fastsup.Session", 1_000_000)
    yield over_calls()
    for retraces in (False, True):
        peer = over_functions(tf.function, "tf.function", None, retraces)
        yield peer
        # TensorFlow keeps what it has traced.
        at_most = 2_000_000 + max(0, peer.grown)
        yield over_functions(fastsup.function, "fastsup.function", at_most, retraces)
    yield over_sessions(TensorFlowMonitored, "tf.compat.v1.train.MonitoredTrainingSession", None)
    yield over_sessions(FastsupMonitored, "fastsup.train.MonitoredTrainingSession", 1_000_000)
