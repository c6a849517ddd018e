"""Splits the result of an input_fn into features, labels and the hook that initializes the dataset."""

from __future__ import annotations

from typing import Any

from tensorflow.python.data.ops import dataset_ops
from tensorflow.python.framework import ops
from tensorflow.python.training import session_run_hook
from tensorflow.python.types import core
from tensorflow.python.util import nest

from fastsup.core.errors import safe_repr

__all__ = ["DistributedIteratorInitializerHook", "is_endless", "parse_input_fn_result", "parse_iterator_result"]


class _DatasetInitializerHook(session_run_hook.SessionRunHook):  # type: ignore[misc]
    """Initializes the iterator of a dataset in each new session."""

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator

    def begin(self) -> None:
        self._initializer = self._iterator.initializer

    def after_create_session(self, session: Any, coord: Any) -> None:
        del coord
        session.run(self._initializer)


class DistributedIteratorInitializerHook(_DatasetInitializerHook):
    """Initializes a strategy's iterator in each new session."""

    def begin(self) -> None:
        self._initializer = self._iterator.initialize()


def parse_input_fn_result(result: Any, input_fn: Any = None) -> tuple[Any, Any, list[Any]]:
    """Splits an input_fn's result into features, labels (or None), and the hooks that initialize the input."""
    hooks: list[Any] = []
    is_dataset = isinstance(result, dataset_ops.DatasetV2)
    if is_dataset:
        iterator = dataset_ops.make_initializable_iterator(result)
        hooks.append(_DatasetInitializerHook(iterator))
        result = iterator.get_next()
    return (*_features_and_labels(result, is_dataset, input_fn), hooks)


def parse_iterator_result(result: Any) -> tuple[Any, Any]:
    """Splits an element of a dataset into features and labels (or None)."""
    return _features_and_labels(result, True, None)


def _features_and_labels(result: Any, is_element: bool, input_fn: Any) -> tuple[Any, Any]:
    if not isinstance(result, list | tuple):
        return result, None
    if len(result) != 2:
        found = f"a {type(result).__name__} of {len(result)}"
        raise ValueError(
            "input_fn should return (features, labels) as a len 2 tuple. "
            f"It returned {'a dataset with elements that are ' if is_element else ''}{found}."
            f"{_place_of(input_fn)} Return a tuple (features, labels), features in a dictionary or a tensor, or a "
            "tf.data.Dataset of one of these."
        )
    return result[0], result[1]


def _place_of(input_fn: Any) -> str:
    """Describes an input_fn and its location for an error message. Returns "" if there is no input_fn."""
    code = getattr(getattr(input_fn, "func", input_fn), "__code__", None)
    place = "" if code is None else f', File "{code.co_filename}", line {code.co_firstlineno}'
    return "" if input_fn is None else f" The input_fn is {safe_repr(input_fn)}{place}."


def is_endless(features: Any) -> bool:
    """Returns True if the features don't come from a dataset and the graph has no queue runner."""
    tensors = [value for value in nest.flatten(features) if isinstance(value, core.Tensor)]
    if any(tensor.op.type == "IteratorGetNext" for tensor in tensors):
        return False
    return not ops.get_default_graph().get_collection(ops.GraphKeys.QUEUE_RUNNERS)
