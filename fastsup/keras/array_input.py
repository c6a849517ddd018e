"""Batches of the arrays that `fit` and `evaluate` are given, copied row by row in Keras's order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.trainers.data_adapters import array_data_adapter, array_slicing, data_adapter, get_data_adapter
from numpy.typing import NDArray

from fastsup.keras.epoch import Epoch, OrderedBatches

__all__ = ["ArrayInput", "array_input"]


class _ShuffledOrders:
    """The orders that Keras's own adapter draws, in a new iterator for each epoch.

    With a seed, all iterators give the same order. To make one takes as long as a thousand small steps.

    Args:
      rows: number of rows.
      shuffle: the adapter's argument.
    """

    def __init__(self, rows: int, shuffle: Any) -> None:
        # With all rows in one batch, it gives the whole order as one element.
        self._dataset = array_data_adapter.ArrayDataAdapter(
            np.arange(rows), batch_size=rows, shuffle=shuffle
        ).get_tf_dataset()
        self._first: list[NDArray[np.int64]] = []
        self._random: Any = None

    def draw(self) -> NDArray[np.int64]:
        """The next order."""
        if len(self._first) < 2:
            self._first.append(self._next_of(iter(self._dataset)))
            return self._first[-1]
        if np.array_equal(*self._first):
            return self._first[0]
        if self._random is None:
            self._random = iter(self._dataset.repeat())
        return self._next_of(self._random)

    def _next_of(self, iterator: Any) -> NDArray[np.int64]:
        order: NDArray[np.int64] = tf.nest.flatten(next(iterator))[0].numpy()
        return order


if TYPE_CHECKING:
    _Adapter = object  # Keras's classes have no known type.
else:
    _Adapter = data_adapter.DataAdapter


class ArrayInput(_Adapter):
    """What Keras takes in the place of arrays.

    Keras's own adapter draws the orders of the rows, so that they are what they would be.

    Args:
      adapter: Keras's adapter of the arrays.
      arrays: the arrays that its batches are made of, in their structure.

    Attributes:
      batches: the batches of the epoch under way.
    """

    def __init__(self, adapter: Any, arrays: Any) -> None:
        self._adapter = adapter
        self.batches: OrderedBatches = OrderedBatches(arrays, adapter.batch_size)
        self._orders = _ShuffledOrders(self.batches.rows, adapter._shuffle) if adapter._shuffle else None

    def __iter__(self) -> Epoch:
        return Epoch(self.batches, self.next_order)

    def get_tf_dataset(self) -> ArrayInput:
        """This input, from which Keras makes an iterator for each epoch."""
        return self

    def next_order(self) -> NDArray[np.int64]:
        """The order of the rows in an epoch that begins."""
        return np.arange(self.batches.rows) if self._orders is None else self._orders.draw()

    @property
    def num_batches(self) -> Any:
        """Number of batches of an epoch."""
        return self._adapter.num_batches

    @property
    def batch_size(self) -> Any:
        """Number of rows of a batch."""
        return self._adapter.batch_size

    @property
    def has_partial_batch(self) -> Any:
        """Whether the last batch has fewer rows."""
        return self._adapter.has_partial_batch

    @property
    def partial_batch_size(self) -> Any:
        """Number of its rows."""
        return self._adapter.partial_batch_size


def array_input(
    x: Any, y: Any, sample_weight: Any, *, batch_size: Any, steps: Any, shuffle: Any, class_weight: Any
) -> ArrayInput | None:
    """The input of arrays of numbers. None if there is something else among them, or Keras refuses them.

    Args:
      x, y, sample_weight, batch_size, steps, shuffle, class_weight: as for Keras's adapter of arrays.
    """
    if shuffle == "batch" or isinstance(x, data_adapter.DataAdapter) or keras.distribution.distribution() is not None:
        return None
    if not array_data_adapter.can_convert_arrays((x, y, sample_weight)):
        return None
    try:
        adapter = array_data_adapter.ArrayDataAdapter(
            x,
            y,
            sample_weight=sample_weight,
            batch_size=batch_size,
            steps=steps,
            shuffle=shuffle,
            class_weight=class_weight,
        )
        inputs = array_slicing.convert_to_sliceable(adapter._inputs, target_backend="tensorflow")
        inputs = keras.tree.lists_to_tuples(inputs)
        leaves = keras.tree.flatten(inputs)
    except Exception:
        return None  # Keras does the same, and says what is wrong.
    if not all(isinstance(leaf, tf.Tensor | np.ndarray) and leaf.dtype not in (tf.string, object) for leaf in leaves):
        return None  # Sparse or ragged tensors, texts, or None for what isn't given.
    found = ArrayInput(adapter, keras.tree.map_structure(np.asarray, inputs))
    return found if get_data_adapter(found) is found else None
