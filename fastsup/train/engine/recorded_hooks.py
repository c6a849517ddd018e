"""The profiler's view of hooks: the spans of saves, listeners and other callbacks, and the cost of fetched values."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tensorflow as tf

from fastsup.core.recorder import Recorder, program_recorder_now, span_here
from fastsup.core.timeline import phase
from fastsup.runtime.interpreter_end import uninterrupted
from fastsup.runtime.session import Session
from fastsup.train.hooks.checkpoint_saver import TFCheckpointSaverHook

__all__ = ["RecordedListener", "count_values", "hook_span", "prepare", "watch"]

_MEASURED_VALUES = 9
_MEASURED_RUNS = 60


class RecordedListener:
    """A CheckpointSaverListener whose callbacks are recorded as spans of the listener, not of the save.

    Args:
      listener: the listener. All other attributes are its own.
    """

    def __init__(self, listener: Any) -> None:
        self.listener = listener

    def before_save(self, session: Any, global_step_value: Any) -> Any:
        """Calls the listener's `before_save`."""
        with span_here("listener", type(self.listener).__name__), phase("listeners"):
            return self.listener.before_save(session, global_step_value)

    def after_save(self, session: Any, global_step_value: Any) -> Any:
        """Calls the listener's `after_save`."""
        with span_here("listener", type(self.listener).__name__), phase("listeners"):
            return self.listener.after_save(session, global_step_value)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.listener, name)

    def __repr__(self) -> str:
        return repr(self.listener)

    def __str__(self) -> str:
        return str(self.listener)


class _RecordedMethod:
    """Replaces a method of a hook that saves, on the instance, as long as a session is recorded."""

    def __init__(self, hook: Any, name: str) -> None:
        self._hook, self._name = hook, name
        setattr(hook, name, self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        hook = self._hook
        listeners = hook._listeners
        with span_here("save"), phase("save"):
            hook._listeners = [RecordedListener(listener) for listener in listeners]
            try:
                # Looked up now, because a program may have replaced the method on the class.
                return getattr(type(hook), self._name)(hook, *args, **kwargs)
            finally:
                hook._listeners = listeners

    def restore(self) -> None:
        """Restores the hook's own method."""
        if vars(self._hook).get(self._name) is self:
            delattr(self._hook, self._name)


def prepare(recorder: Recorder) -> None:
    """Measures the cost of a fetched value for a recorder, in a session of its own.

    Args:
      recorder: the recorder that is going to record a session.
    """
    if not recorder.value_ns:
        recorder.value_ns = value_cost_ns()


def watch(recorder: Recorder, hooks: Iterable[Any], caller: int) -> Callable[[], None]:
    """Registers hooks with a recorder, in their order.

    Args:
      recorder: the recorder.
      hooks: the hooks of a session.
      caller: the recorder's number of the session.

    Returns:
      A function without arguments that restores the hooks.
    """
    methods: list[_RecordedMethod] = []
    for hook in hooks:
        recorder.register(hook, caller)
        # A method that a program has set on the instance stays.
        if isinstance(hook, TFCheckpointSaverHook) and "_save" not in vars(hook):
            methods.append(_RecordedMethod(hook, "_save"))

    def unwatch() -> None:
        for method in methods:
            method.restore()

    return unwatch


def count_values(fetches: Any) -> int:
    """Returns the number of values in a hook's fetches.

    Args:
      fetches: a tensor, or nested lists, tuples and dictionaries of tensors. Operations have no value.
    """
    if isinstance(fetches, dict):
        return sum(map(count_values, fetches.values()))
    if isinstance(fetches, list | tuple):
        return sum(map(count_values, fetches))
    return 0 if isinstance(fetches, tf.Operation) else 1


# The result of value_cost_ns, measured once per process.
_value_cost_ns: list[float] = []


def value_cost_ns() -> float:
    """Measures the cost of one more small fetched value in a run, on a graph of constants, in nanoseconds."""
    if not _value_cost_ns:
        with uninterrupted, tf.Graph().as_default():
            values = [tf.constant(float(i)) for i in range(_MEASURED_VALUES)]
            # In one thread, so that only the making of the arrays is measured.
            with Session(executor="single_threaded") as session:
                all_of_them, one = (_best_ns(session, fetches) for fetches in (values, values[:1]))
        _value_cost_ns.append(max(0.0, (all_of_them - one) / (_MEASURED_VALUES - 1)))
    return _value_cost_ns[0]


def _best_ns(session: Session, fetches: list[Any]) -> int:
    times = []
    for _ in range(_MEASURED_RUNS):
        started = time.perf_counter_ns()
        session.run(fetches)
        times.append(time.perf_counter_ns() - started)
    return min(times)


def hook_span(recorder: Recorder | None, hook: Any, phase: str) -> AbstractContextManager[Any]:
    """Returns a context manager that records a hook's callback outside the steps.

    Args:
      recorder: the session's recorder. None: the recorder of the whole program, if there is one.
      hook: the hook.
      phase: name of the callback.
    """
    recorder = recorder or program_recorder_now()
    if recorder is None or recorder.steps_begun == 0:
        return nullcontext()
    return recorder.span(hook, phase)
