"""What an input_fn returns: features, labels, and the hook that starts its dataset."""

from __future__ import annotations

from typing import Any

from tensorflow.python.data.ops import dataset_ops
from tensorflow.python.framework import ops
from tensorflow.python.training import session_run_hook
from tensorflow.python.types import core
from tensorflow.python.util import nest

__all__ = ["DistributedIteratorInitializerHook", "parse_input_fn_result", "parse_iterator_result", "warns_of_no_end"]


class _DatasetInitializerHook(session_run_hook.SessionRunHook):  # type: ignore[misc]
    """Starts a dataset's iterator in each new session.

    Args:
      iterator: the iterator.
    """

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator

    def begin(self) -> None:
        self._initializer = self._iterator.initializer

    def after_create_session(self, session: Any, coord: Any) -> None:
        del coord
        session.run(self._initializer)


class DistributedIteratorInitializerHook(_DatasetInitializerHook):
    """The same for the iterator of a strategy."""

    def begin(self) -> None:
        self._initializer = self._iterator.initialize()


def parse_input_fn_result(result: Any) -> tuple[Any, Any, list[Any]]:
    """Takes apart what an input_fn has returned.

    Args:
      result: a `tf.data.Dataset`, features, or a pair of features and labels.

    Returns:
      Features, labels (or None), and the hooks that start the input.

    Raises:
      ValueError: a tuple or list of other than two.
    """
    hooks: list[Any] = []
    if isinstance(result, dataset_ops.DatasetV2):
        iterator = dataset_ops.make_initializable_iterator(result)
        hooks.append(_DatasetInitializerHook(iterator))
        result = iterator.get_next()
    return (*parse_iterator_result(result), hooks)


def parse_iterator_result(result: Any) -> tuple[Any, Any]:
    """Features, and labels or None, of one element of a dataset.

    Raises:
      ValueError: a tuple or list of other than two.
    """
    if not isinstance(result, list | tuple):
        return result, None
    if len(result) != 2:
        raise ValueError(
            "input_fn should return (features, labels) as a len 2 tuple. "
            f"It returned a {type(result).__name__} of {len(result)}."
        )
    return result[0], result[1]


def warns_of_no_end(features: Any) -> bool:
    """Whether nothing in the graph looks like an input that ends."""
    tensors = [value for value in nest.flatten(features) if isinstance(value, core.Tensor)]
    if any(tensor.op.type == "IteratorGetNext" for tensor in tensors):
        return False
    return not ops.get_default_graph().get_collection(ops.GraphKeys.QUEUE_RUNNERS)
