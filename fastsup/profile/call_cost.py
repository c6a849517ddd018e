"""What TensorFlow's call of a function costs on this machine, beyond what `fastsup.function` makes of it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

__all__ = ["tensorflow_call_ns"]

_CALLS = 100
_BEFORE = 30
# The result, measured once per process.
_measured: list[float] = []


def tensorflow_call_ns() -> float:
    """Measures, on a small function, the nanoseconds of TensorFlow's call that a lifted one spares.

    Returns:
      The nanoseconds; 0 if no function is lifted here.
    """
    if not _measured:
        import tensorflow as tf

        import fastsup
        from fastsup.common.interpreter_end import completed_before_exit
        from fastsup.core.probe import nothing_recorded
        from fastsup.eager.function_notes import no_notes

        with completed_before_exit, nothing_recorded(), no_notes():
            one = tf.constant(1.0)
            plain = tf.function(lambda value: value + one)
            lifted = fastsup.function(plain, executor="inline", fallback="silent")
            spared = _median_ns(plain, one) - _median_ns(lifted, one)
            _measured.append(max(spared, 0.0) if lifted.lifted else 0.0)
    return _measured[0]


def _median_ns(function: Callable[[Any], Any], argument: Any) -> float:
    for _ in range(_BEFORE):
        function(argument)
    times = []
    for _ in range(_CALLS):
        started = time.perf_counter_ns()
        function(argument)
        times.append(time.perf_counter_ns() - started)
    return statistics.median(times)
