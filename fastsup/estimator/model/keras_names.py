"""Makes Keras 3 number its layers per graph, as Keras 2 did."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tensorflow.python.distribute import distribute_lib

from fastsup.common.absent_names import Keras2Hint

__all__ = ["graph_keras_names"]

_STATE_MODULE = "keras.src.backend.common.global_state"
# The parts of the thread's Keras state that graphs must not share: the counters of the automatic names, and the
# variable of the unseeded random numbers, which belongs to the graph in which it was made.
_STATE_KEYS = ("object_name_uids", "global_seed_generator")
# The attribute of a graph for this state. The variable refers to the graph, so a dictionary with weak references to
# graphs would keep all graphs alive.
_ATTRIBUTE = "_fastsup_keras_state"


class _Entered(threading.local):
    """The graphs whose state this thread uses, innermost last."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []


_entered = _Entered()


def _exchange(state: dict[str, Any]) -> dict[str, Any]:
    """Replaces the Keras state of this thread, and returns the old one, which is empty unless Keras is imported."""
    module = sys.modules.get(_STATE_MODULE)
    # Looked up each time, because clear_session() makes a new tracker.
    tracker = getattr(module, "GLOBAL_STATE_TRACKER", None)
    if tracker is None:
        return {}
    current = vars(tracker)
    old = {name: current.pop(name) for name in _STATE_KEYS if name in current}
    current.update(state)
    return old


@contextmanager
def graph_keras_names(graph: Any) -> Iterator[None]:
    """A context in which Keras 3 numbers layers by the counters of a graph, in place of those of the thread.

    The counters of the thread are restored at the end. A replica of a strategy uses a copy of the graph's counters, so
    that all replicas have the same names. This function doesn't import Keras.

    Args:
      graph: the `tf.Graph` that the code inside builds.

    Raises:
      AttributeError: the code inside calls a function of Keras 2 under Keras 3. The message has the remedy.
    """
    if any(entered is graph for entered in _entered.graphs):
        yield
        return
    state: dict[str, Any] | None = getattr(graph, _ATTRIBUTE, None)
    if state is None:
        state = {}
        setattr(graph, _ATTRIBUTE, state)
    if distribute_lib.has_strategy() and not distribute_lib.in_cross_replica_context():
        state = {name: value.copy() if hasattr(value, "copy") else value for name, value in state.items()}
    callers = _exchange(state)
    _entered.graphs.append(graph)
    try:
        with Keras2Hint():
            yield
    finally:
        _entered.graphs.pop()
        state.update(_exchange(callers))
