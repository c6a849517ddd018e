"""Keras 3 beside graphs: each graph gets layer names of its own, as Keras 2 gave them."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tensorflow.python.distribute import distribute_lib

__all__ = ["keras_names_of", "name_hint"]

_STATE_MODULE = "keras.src.backend.common.global_state"
# What Keras 3 keeps for each thread and must not be shared by graphs: the counters of the automatic names, and the
# variable behind random numbers without a seed, which belongs to the graph that it was made in.
_KEPT = ("object_name_uids", "global_seed_generator")
# The attribute of a graph that holds them. The variable refers to the graph: a dictionary of weak references to graphs
# would never let the graph go.
_ATTRIBUTE = "_fastsup_keras_state"

_NOT_IN_KERAS_3 = re.compile(r"`\w+` is not available with Keras 3\.$")
_LEGACY_KERAS = (
    "tf.compat.v1.layers and tf.compat.v1.nn.rnn_cell need Keras 2: `pip install tf_keras`, and set the environment "
    "variable TF_USE_LEGACY_KERAS=1 before tensorflow is imported. Under Keras 3 use tf.keras.layers."
)


class _Entered(threading.local):
    """The graphs whose names this thread uses at the moment."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []


_entered = _Entered()


def _exchange(state: dict[str, Any]) -> dict[str, Any]:
    """Puts a state in the place of this thread's, and returns the old one. Without Keras there is none."""
    module = sys.modules.get(_STATE_MODULE)
    # A call of clear_session() makes a new tracker: it is looked up each time.
    tracker = getattr(module, "GLOBAL_STATE_TRACKER", None)
    if tracker is None:
        return {}
    current = vars(tracker)
    old = {name: current.pop(name) for name in _KEPT if name in current}
    current.update(state)
    return old


@contextmanager
def keras_names_of(graph: Any) -> Iterator[None]:
    """Lets Keras 3 count layer names in this graph: they start with the graph, not with the process.

    The caller's own counters come back at the end. A replica of a strategy starts with a copy of the graph's counters,
    so that all replicas have the same names. Keras is not imported for it.

    Args:
      graph: the `tf.Graph` that the code inside builds.

    Raises:
      AttributeError: the code inside uses a function of Keras 2 under Keras 3. The message says how to install Keras 2.
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
        yield
    except AttributeError as error:
        if not _NOT_IN_KERAS_3.search(str(error)):
            raise
        raise AttributeError(f"{error} {_LEGACY_KERAS}", name=error.name, obj=error.obj) from error
    finally:
        _entered.graphs.pop()
        state.update(_exchange(callers))


def _without_number(name: str) -> str:
    """The name with the numbers of its layers left out: `dense_2/bias` and `dense/bias` have that in common."""
    return re.sub(r"_\d+(?=/|$)", "", name)


def name_hint(message: str, names: Iterable[str]) -> str:
    """What to do about a variable that a checkpoint has under another number.

    Args:
      message: TensorFlow's message, which names the variable that is missing.
      names: the variables of the checkpoint.

    Returns:
      Sentences, or an empty string where no variable of the checkpoint differs in numbers alone.
    """
    missing = re.search(r"Key (\S+) not found in checkpoint", message)
    if missing is None:
        return ""
    wanted = missing[1]
    similar = sorted(name for name in names if name != wanted and _without_number(name) == _without_number(wanted))
    if not similar:
        return ""
    return (
        f"The checkpoint has {', '.join(similar)}, which differs from {wanted} in the number of the layer alone. Keras "
        "numbers layers without a name in the order in which they are made: make all layers inside the model_fn and in "
        'the same order in each mode, or name each layer, as in tf.keras.layers.Dense(8, name="hidden"). An existing '
        "checkpoint is read under its old names by a layer that has the old name, or by "
        "tf.compat.v1.train.init_from_checkpoint, which takes a dictionary from old names to new ones."
    )
