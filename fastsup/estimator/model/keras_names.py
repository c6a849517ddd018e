"""Makes Keras 3 number its layers per graph, as Keras 2 did."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tensorflow.python.distribute import distribute_lib

from fastsup.common.keras_2 import Keras2Hint

__all__ = ["graph_keras_names", "renumbered_layer_hint"]

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


def _without_numbers(name: str) -> str:
    """A variable's name without the numbers of the layers: `dense_1_1/bias` and `dense/bias` give the same name."""
    return re.sub(r"(_\d+)+(?=/|$)", "", name)


def renumbered_layer_hint(message: str, names: Iterable[str]) -> str:
    """The remedy for a variable that a checkpoint has under another layer number.

    Args:
      message: TensorFlow's error message, which has the name of the missing variable.
      names: names of the checkpoint's variables.

    Returns:
      The remedy; "" if no name in the checkpoint differs in layer numbers alone.
    """
    missing = re.search(r"Key (\S+) not found in checkpoint", message)
    if missing is None:
        return ""
    wanted = missing[1]
    similar = sorted(name for name in names if name != wanted and _without_numbers(name) == _without_numbers(wanted))
    if not similar:
        return ""
    return (
        f"The checkpoint has {', '.join(similar)}, which differs from {wanted} in the number of the layer alone. Keras "
        "numbers layers without a name in the order in which they are made: make all layers inside the model_fn and in "
        'the same order in each mode, or name each layer, as in tf.keras.layers.Dense(8, name="hidden"). An existing '
        "checkpoint is read under its old names by a layer that has the old name, or by "
        "tf.compat.v1.train.init_from_checkpoint, which takes a dictionary from old names to new ones."
    )
