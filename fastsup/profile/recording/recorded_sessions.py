"""A profile's data about TensorFlow sessions and hooks: saves, plans, the cost of fetched values."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from fastsup.common.interpreter_end import no_interpreter_exit
from fastsup.core.probe import callback_part_here
from fastsup.core.timeline import phase
from fastsup.runtime.runner import SessionRunner
from fastsup.runtime.session import Session
from fastsup.train.hooks.checkpoint_saver import TFCheckpointSaverHook

__all__ = ["RecordedListener", "session_info_of", "value_cost_ns", "watch_saves"]

_MEASURED_VALUES = 9
_MEASURED_RUNS = 60


class RecordedListener:
    """A CheckpointSaverListener whose callbacks are recorded as spans of the listener instead of the save.

    Args:
      listener: the listener. All other attributes are its own.
    """

    def __init__(self, listener: Any) -> None:
        self.listener = listener

    def before_save(self, session: Any, global_step_value: Any) -> Any:
        """Calls the listener's `before_save`."""
        with callback_part_here("listener", type(self.listener).__name__), phase("listeners"):
            return self.listener.before_save(session, global_step_value)

    def after_save(self, session: Any, global_step_value: Any) -> Any:
        """Calls the listener's `after_save`."""
        with callback_part_here("listener", type(self.listener).__name__), phase("listeners"):
            return self.listener.after_save(session, global_step_value)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.listener, name)

    def __repr__(self) -> str:
        return repr(self.listener)

    def __str__(self) -> str:
        return str(self.listener)


class _RecordedMethod:
    """Replaces a saving hook's method on the instance while a session is recorded."""

    def __init__(self, hook: Any, name: str) -> None:
        self._hook, self._name = hook, name
        setattr(hook, name, self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        hook = self._hook
        listeners = hook._listeners
        with callback_part_here("save"), phase("save"):
            hook._listeners = [RecordedListener(listener) for listener in listeners]
            try:
                # Look the method up now, because a program may have replaced it on the class.
                return getattr(type(hook), self._name)(hook, *args, **kwargs)
            finally:
                hook._listeners = listeners

    def restore(self) -> None:
        """Restores the hook's own method."""
        if vars(self._hook).get(self._name) is self:
            delattr(self._hook, self._name)


def watch_saves(hooks: Iterable[Any]) -> Callable[[], None]:
    """Records the saves of hooks, and their listeners, as parts of the hooks' callbacks.

    Args:
      hooks: the hooks of a session.

    Returns:
      A function without arguments that restores the hooks.
    """
    # A method that a program set on the instance remains.
    methods = [
        _RecordedMethod(hook, "_save")
        for hook in hooks
        if isinstance(hook, TFCheckpointSaverHook) and "_save" not in vars(hook)
    ]

    def unwatch() -> None:
        for method in methods:
            method.restore()

    return unwatch


def session_info_of(session: Any) -> Callable[[], dict[str, Any]]:
    """Returns a function that describes a session without keeping it alive.

    Args:
      session: a session of any class.

    Returns:
      A function without arguments. It returns a dictionary: `asked`, the session's executor mode; `plans`, a list of
      dictionaries with fetches, feeds, executor, on_trial and seconds; `operations`, the number of operations in the
      graph. The dictionary is empty if the session no longer exists, or isn't a `fastsup.Session`.
    """
    if not isinstance(session, SessionRunner):
        return dict
    reference = weakref.ref(session)

    def session_info() -> dict[str, Any]:
        session: Any = reference()
        if session is None:
            return {}
        plans = [plan._asdict() for plan in session.executor_info()]
        with no_interpreter_exit:
            operations = session.graph.version
        return {"asked": session.executor, "plans": plans, "operations": operations}

    return session_info


# The result of value_cost_ns, which is measured once per process.
_value_cost_ns: list[float] = []


def value_cost_ns() -> float:
    """Measures the cost of fetching one more small value in a run, with a graph of constants, in nanoseconds."""
    if not _value_cost_ns:
        with no_interpreter_exit, tf.Graph().as_default():
            values = [tf.constant(float(i)) for i in range(_MEASURED_VALUES)]
            # Run in one thread, so that only the creation of arrays is measured.
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
