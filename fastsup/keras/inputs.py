"""The input of a `fit`, `evaluate` or `predict` call: Keras's adapter with fastsup's iterators."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from keras.src.trainers.data_adapters import array_data_adapter, array_slicing, data_adapter, get_data_adapter
from keras.src.trainers.epoch_iterator import EpochIterator
from keras.tree import flatten, lists_to_tuples, map_structure
from numpy.typing import NDArray
from tensorflow.python.eager import context
from tensorflow.python.framework import config

from fastsup.core.probe import part_here
from fastsup.keras.model_function import Call, Epoch
from fastsup.steps.array_batches import ArrayBatches
from fastsup.steps.batches import ArrayBlocks, IteratorBlocks

# Maximum number of rows whose order is kept for later calls.
_MOST_ROWS_KEPT = 1 << 15

__all__ = ["LoopInput", "OrderedBatches", "is_adapter", "split", "takes_adapters"]


class OrderedBatches(ArrayBatches):
    """Batches of one epoch in a given order."""

    def __init__(self, arrays: Any, batch_size: int) -> None:
        super().__init__(arrays, batch_size, shuffle=True, seed=0)
        self._given = np.arange(self.rows)

    def begin(self, order: NDArray[np.int64]) -> None:
        """Starts an epoch.

        Args:
          order: the numbers of the rows.
        """
        self._given = np.ascontiguousarray(order, np.int64)
        self.seed = (self.seed or 0) + 1  # Each order has its own seed.
        self.position = 0

    def __next__(self) -> Any:
        with part_here("wait for input"):
            return super().__next__()

    def _order(self, seed: int, epoch: int) -> NDArray[np.int64]:
        return self._given


def _order_of_keras(rows: int) -> NDArray[np.int64]:
    """Returns the row order of an epoch from a new Keras adapter. This takes as long as a thousand small steps."""
    # With all rows in one batch, the adapter returns the whole order as one element.
    adapter = array_data_adapter.ArrayDataAdapter(np.arange(rows), batch_size=rows, shuffle=True)
    order: NDArray[np.int64] = tf.nest.flatten(next(iter(adapter.get_tf_dataset())))[0].numpy()
    return order


@functools.lru_cache(maxsize=32)
def _kept_order(rows: int, seed: int | None) -> NDArray[np.int64]:
    return _order_of_keras(rows)


@functools.cache
def _is_random_without_seed() -> bool:
    """Returns True if Keras draws a new order for each epoch if TensorFlow has no seed, as up to 3.15."""
    return not np.array_equal(_order_of_keras(64), _order_of_keras(64))


def _drawing(rows: int) -> Callable[[], NDArray[np.int64]]:
    """Returns a function that draws the row order of each epoch as Keras does. With a seed, it is always the same."""
    seed = context.global_seed()
    # Without a seed, TensorFlow refuses to draw if operations must be deterministic.
    if seed is None and not config.is_op_determinism_enabled() and _is_random_without_seed():
        generator = np.random.default_rng()
        return lambda: generator.permutation(rows)
    order = _kept_order(rows, seed) if rows <= _MOST_ROWS_KEPT else _order_of_keras(rows)
    return lambda: order


if TYPE_CHECKING:
    _Adapter = object  # Keras's classes are untyped.
else:
    _Adapter = data_adapter.DataAdapter


class LoopInput(_Adapter):
    """Replaces an input among a call's arguments. Keras treats it as an adapter.

    Keras's own adapter is created at the usual time. Only the iterators are replaced: each is an `Epoch` of this call.

    Args:
      call: the call.
      acceleration: the `Acceleration` of the model.
      **given: the arguments of Keras's `EpochIterator`.
    """

    #: This attribute makes a profiler replace `dataset`.
    has_own_dataset = True

    def __init__(self, call: Call, acceleration: Any, **given: Any) -> None:
        self._call = call
        self._acceleration = acceleration
        self._given = given
        self._arrays: _ArrayEpochs | None = None
        #: The `tf.data.Dataset` that the epochs iterate over, or None for arrays. A profiler replaces it.
        self.dataset: Any = None

    @functools.cached_property
    def adapter(self) -> Any:
        """Keras's adapter, created when Keras requests the number of batches. It raises Keras's errors and warnings."""
        given, self._given = self._given, {}
        # Don't use `get_data_adapter`. Its warnings name the calling module, which a program's warning filter may use.
        return EpochIterator(**given).data_adapter

    def get_tf_dataset(self) -> Any:
        """Returns a `tf.data.Dataset`, or this object, from which Keras creates an iterator for each epoch."""
        function = self._acceleration.make_function(self._call.kind)
        if function is None:
            return self.adapter.get_tf_dataset()
        self._arrays = _ArrayEpochs.of(self.adapter)
        if self._arrays is not None:
            return self
        self.dataset = self.adapter.get_tf_dataset()
        if self._call.kind == "predict" or function.why_never or not isinstance(self.dataset, tf.data.Dataset):
            return self.dataset
        return self

    def __iter__(self) -> Any:
        if not self._acceleration.takes_epochs(self._call.kind):
            # A callback replaced the model's function.
            if self.dataset is None:
                self.dataset = self.adapter.get_tf_dataset()
            return iter(self.dataset)
        if self._arrays is not None:
            batches = self._arrays.batches
            placeholders = batches.batches_per_epoch if self._call.kind == "predict" else None
            return Epoch(self._call, batches.element_spec, self._arrays.open_epoch, placeholders=placeholders)
        iterator = iter(self.dataset)
        return Epoch(self._call, iterator.element_spec, functools.partial(IteratorBlocks, iterator), iterator)

    def close(self) -> None:
        """Releases the batches."""
        self._call.close()
        self._arrays = self.dataset = None

    @property
    def num_batches(self) -> Any:
        """Same as in Keras's adapter."""
        return self.adapter.num_batches

    @property
    def batch_size(self) -> Any:
        """Same as in Keras's adapter."""
        return self.adapter.batch_size

    @property
    def has_partial_batch(self) -> Any:
        """Same as in Keras's adapter."""
        return self.adapter.has_partial_batch

    @property
    def partial_batch_size(self) -> Any:
        """Same as in Keras's adapter."""
        return self.adapter.partial_batch_size

    def on_epoch_begin(self) -> None:
        """Does the same as in Keras's adapter."""
        self.adapter.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """Does the same as in Keras's adapter."""
        self.adapter.on_epoch_end()


class _ArrayEpochs:
    """The epochs of numeric arrays, whose rows are copied in the order that Keras draws.

    Args:
      arrays: the structure of arrays.
      batch_size, shuffle: as for Keras's adapter.
    """

    def __init__(self, arrays: Any, batch_size: int, shuffle: Any) -> None:
        self.batches = OrderedBatches(arrays, batch_size)
        self._draw = _drawing(self.batches.rows) if shuffle else functools.partial(np.arange, self.batches.rows)
        self._blocks: ArrayBlocks | None = None

    @classmethod
    def of(cls, adapter: Any) -> _ArrayEpochs | None:
        """Returns the epochs of an adapter, or None unless it has only arrays of numbers."""
        if type(adapter) is not array_data_adapter.ArrayDataAdapter or adapter._shuffle == "batch":
            return None
        given = lists_to_tuples(adapter._inputs)
        inputs = lists_to_tuples(array_slicing.convert_to_sliceable(adapter._inputs, target_backend="tensorflow"))
        leaves = flatten(inputs)
        if not all(
            isinstance(leaf, tf.Tensor | np.ndarray) and leaf.dtype not in (tf.string, object) for leaf in leaves
        ):
            return None
        try:
            return cls(map_structure(_own_array, inputs, given), adapter._batch_size, adapter._shuffle)
        except (TypeError, ValueError):
            # There are no rows, or the batch size isn't an integer. Keras accepts these or reports the mistake.
            return None

    def open_epoch(self) -> ArrayBlocks:
        """Draws the order of an epoch, and returns the source of its batches."""
        self.batches.begin(self._draw())
        if self._blocks is None:
            self._blocks = ArrayBlocks(self.batches)
        return self._blocks


def _own_array(converted: Any, given: Any) -> NDArray[Any]:
    """Copies an array whose memory the program can change, because Keras also copies arrays when a call starts."""
    if isinstance(given, tf.Tensor) or (isinstance(given, np.ndarray) and given.dtype != converted.dtype):
        return np.asarray(converted)
    return np.array(converted)


def is_adapter(x: Any) -> bool:
    """Returns True for a Keras adapter, including the program's own."""
    return isinstance(x, data_adapter.DataAdapter)


class _AnyAdapter(_Adapter):
    pass


def takes_adapters() -> bool:
    """Returns True if Keras accepts an adapter for x, as since 3.7."""
    adapter = _AnyAdapter()
    try:
        return get_data_adapter(adapter) is adapter
    except Exception:
        return False


def split(arrays: tuple[Any, ...], validation_split: float) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Splits arrays into training and validation data, as `fit` does.

    Args:
      arrays: x, y and the sample weights, or None for each that isn't given.
      validation_split: the argument of `fit`.

    Raises:
      Exception: The same errors as Keras's `fit`.
    """
    trained, validated = array_slicing.train_validation_split(arrays, validation_split=validation_split)
    return tuple(trained), tuple(validated)
