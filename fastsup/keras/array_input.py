"""Batches of the arrays that `fit`, `evaluate` and `predict` are given, copied row by row in Keras's order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.trainers.data_adapters import array_data_adapter, array_slicing, data_adapter, get_data_adapter
from keras.tree import flatten, lists_to_tuples, map_structure
from numpy.typing import NDArray

from fastsup.keras.epoch import Epoch, OrderedBatches

__all__ = ["ArrayInput", "array_input", "split"]


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

    class _Adapter:  # Keras's classes have no known type.
        _inputs: Any
        _batch_size: Any
        _shuffle: Any

        def __init__(self, *arrays: Any, **options: Any) -> None: ...

else:
    _Adapter = array_data_adapter.ArrayDataAdapter


class ArrayInput(_Adapter):
    """Keras's adapter of arrays, which gives no dataset of batches but an iterator of each epoch's.

    Keras's own code draws the orders of the rows, so that they are what they would be.

    Args:
      *arrays, **options: those of Keras's adapter.
      gives_batches: as for `Epoch`.

    Attributes:
      batches: the batches of the epoch under way.

    Raises:
      TypeError: something isn't an array of numbers: a sparse or ragged tensor, texts, None for what is left out.
      Exception: as for Keras's adapter.
    """

    def __init__(self, *arrays: Any, gives_batches: bool = True, **options: Any) -> None:
        super().__init__(*arrays, **options)
        self._gives_batches = gives_batches
        inputs = array_slicing.convert_to_sliceable(self._inputs, target_backend="tensorflow")
        inputs = lists_to_tuples(inputs)
        for leaf in flatten(inputs):
            if not isinstance(leaf, tf.Tensor | np.ndarray) or leaf.dtype in (tf.string, object):
                raise TypeError(f"not an array of numbers: {leaf!r}")
        self.batches: OrderedBatches = OrderedBatches(map_structure(np.asarray, inputs), self._batch_size)
        self._orders = _ShuffledOrders(self.batches.rows, self._shuffle) if self._shuffle else None

    def __iter__(self) -> Epoch:
        return Epoch(self.batches, self.next_order, self._gives_batches)

    def get_tf_dataset(self) -> ArrayInput:
        """This input, from which Keras makes an iterator for each epoch."""
        return self

    def next_order(self) -> NDArray[np.int64]:
        """The order of the rows in an epoch that begins."""
        return np.arange(self.batches.rows) if self._orders is None else self._orders.draw()


def split(arrays: tuple[Any, ...], validation_split: float) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Splits arrays into those to train with and those to validate with, as `fit` does.

    Args:
      arrays: x, y and the weights of the samples, each None if it is left out.
      validation_split: the argument of `fit`.

    Raises:
      Exception: as Keras's `fit`.
    """
    trained, validated = array_slicing.train_validation_split(arrays, validation_split=validation_split)
    return tuple(trained), tuple(validated)


def array_input(
    x: Any,
    y: Any,
    sample_weight: Any,
    *,
    batch_size: Any,
    steps: Any,
    shuffle: Any,
    class_weight: Any,
    gives_batches: bool = True,
) -> ArrayInput | None:
    """The input of arrays of numbers. None if there is something else among them, or Keras refuses them.

    Args:
      x, y, sample_weight, batch_size, steps, shuffle, class_weight: as for Keras's adapter of arrays.
      gives_batches: as for `Epoch`.
    """
    if shuffle == "batch" or isinstance(x, data_adapter.DataAdapter) or keras.distribution.distribution() is not None:
        return None
    if not array_data_adapter.can_convert_arrays((x, y, sample_weight)):
        return None
    try:
        found = ArrayInput(
            x,
            y,
            sample_weight=sample_weight,
            batch_size=batch_size,
            steps=steps,
            shuffle=shuffle,
            class_weight=class_weight,
            gives_batches=gives_batches,
        )
        taken = get_data_adapter(found)  # Keras before 3.6 doesn't take an adapter.
    except Exception:
        return None  # Keras makes the batches itself, or says what is wrong.
    return found if taken is found else None
