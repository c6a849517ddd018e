"""Parses the return value of an input_fn into features, labels and the hook that initialises the dataset."""

from __future__ import annotations

from typing import Any

from tensorflow.python.data.ops import dataset_ops
from tensorflow.python.framework import ops
from tensorflow.python.training import session_run_hook
from tensorflow.python.types import core
from tensorflow.python.util import nest

__all__ = ["DistributedIteratorInitializerHook", "is_endless", "parse_input_fn_result", "parse_iterator_result"]


class _DatasetInitializerHook(session_run_hook.SessionRunHook):  # type: ignore[misc]
    """Initialises the iterator of a dataset in each new session."""

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator

    def begin(self) -> None:
        self._initializer = self._iterator.initializer

    def after_create_session(self, session: Any, coord: Any) -> None:
        del coord
        session.run(self._initializer)


class DistributedIteratorInitializerHook(_DatasetInitializerHook):
    """Initialises the iterator of a strategy in each new session."""

    def begin(self) -> None:
        self._initializer = self._iterator.initialize()


def parse_input_fn_result(result: Any) -> tuple[Any, Any, list[Any]]:
    """Features, labels or None, and the hooks that initialise the input, of what an input_fn has returned."""
    hooks: list[Any] = []
    if isinstance(result, dataset_ops.DatasetV2):
        iterator = dataset_ops.make_initializable_iterator(result)
        hooks.append(_DatasetInitializerHook(iterator))
        result = iterator.get_next()
    return (*parse_iterator_result(result), hooks)


def parse_iterator_result(result: Any) -> tuple[Any, Any]:
    """Features, and labels or None, of one element of a dataset."""
    if not isinstance(result, list | tuple):
        return result, None
    if len(result) != 2:
        raise ValueError(
            "input_fn should return (features, labels) as a len 2 tuple. "
            f"It returned a {type(result).__name__} of {len(result)}."
        )
    return result[0], result[1]


def is_endless(features: Any) -> bool:
    """True if the features don't come from a dataset, and the graph has no queue runner."""
    tensors = [value for value in nest.flatten(features) if isinstance(value, core.Tensor)]
    if any(tensor.op.type == "IteratorGetNext" for tensor in tensors):
        return False
    return not ops.get_default_graph().get_collection(ops.GraphKeys.QUEUE_RUNNERS)
