"""`fastsup.ArrayBatches`: batches of arrays in memory. This module needs only NumPy."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastsup.core.checks import check_flag, suggest_keywords
from fastsup.steps.batch_call import check_position
from fastsup.steps.rows import take_rows

if TYPE_CHECKING:
    from tensorflow import nest

    _State = object  # TensorFlow's classes are untyped.
else:
    try:
        from fastsup.runtime import tensorflow

        nest = tensorflow.nest
        # A tf.train.Checkpoint refuses objects of other classes.
        _State = tensorflow.train.experimental.PythonState
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":
            raise
        from fastsup.steps import plain_nest as nest

        _State = object

__all__ = ["ArrayBatches"]

_logger = logging.getLogger("fastsup")

# Number of epochs whose order is kept: the current one, and the next one, from which a thread may fill a block.
_ORDERS = 2


class ArrayBatches(_State):
    """Iterates over batches of array rows, optionally shuffled in each epoch.

        batches = fastsup.ArrayBatches((images, labels), batch_size=32, shuffle=True, seed=1, epochs=None)
        for x, y in batches: ...

    It works like `iter(tf.data.Dataset.from_tensor_slices(arrays).shuffle(rows).batch(32))`, for data that fits into
    memory. A batch costs as much as copying its rows. A `tf.train.Checkpoint` saves and restores its position, as for a
    tf.data iterator. It gives the same batches in the same order with and without TensorFlow.

    Args:
      arrays: an array, or a tuple, list or dict of arrays, nested arbitrarily. All have the same number of rows (the
        first dimension). Arrays that aren't contiguous in memory are copied once.
      batch_size: number of rows per batch.
      shuffle: Whether to shuffle the rows in each epoch. Each epoch contains each row once.
      seed: integer that determines the orders. If None, a random one is chosen.
      epochs: number of passes over all rows. If None, there is no limit.
      drop_remainder: Whether to drop the last batch of an epoch if it has fewer rows than the others.

    Attributes:
      rows: number of rows.
      batch_size: the argument.
      batches_per_epoch: number of batches per epoch.
      seed: the argument, or the chosen seed. None without `shuffle`.

    Raises:
      TypeError: If a number isn't an integer, or a flag isn't a bool.
      ValueError: If `arrays` contains no arrays or no rows, the arrays have different numbers of rows, `batch_size` or
        `epochs` isn't positive, `seed` is negative, or `drop_remainder` is True and a batch would have more rows than
        there are.
    """

    @suggest_keywords
    def __init__(
        self,
        arrays: Any,
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int | None = None,
        epochs: int | None = 1,
        drop_remainder: bool = False,
    ) -> None:
        check_flag(shuffle=shuffle, drop_remainder=drop_remainder)
        self.batch_size: int = _positive("batch_size", batch_size)
        self._epochs = None if epochs is None else _positive("epochs", epochs)
        self._arrays: list[NDArray[Any]] = [_contiguous(leaf) for leaf in nest.flatten(arrays)]
        self._packed = _packer(arrays)
        # The arrays as bytes. An entry is None for an array of objects, or for an array without any bytes.
        self._as_bytes = [
            None if array.dtype.hasobject or not array.nbytes else _bytes_of(array) for array in self._arrays
        ]
        self.rows: int = _rows_of(self._arrays)
        if drop_remainder and self.batch_size > self.rows:
            raise ValueError(
                f"batch_size must be at most the number of rows, {self.rows}, with drop_remainder=True; got "
                f"{batch_size}."
            )
        full, remainder = divmod(self.rows, self.batch_size)
        self.batches_per_epoch: int = full + (remainder > 0 and not drop_remainder)
        #: Number of batches per epoch with `batch_size` rows. Smaller batches come last.
        self.full_batches_per_epoch: int = full
        self.seed: int | None = _seed(seed) if shuffle else None
        if seed is not None and not shuffle:
            _logger.warning("seed=%r has no effect without shuffle=True: the rows keep their order.", seed)
        self._position = 0
        self._lock = threading.Lock()
        # The key is the seed, which a checkpoint may change, and the epoch.
        self._orders: dict[tuple[int, int], NDArray[np.int64]] = {}

    def __repr__(self) -> str:
        return f"<fastsup.ArrayBatches of {self.rows} rows, {self.batch_size} a batch, at batch {self._position}>"

    @property
    def position(self) -> int:
        """Number of batches taken so far. Set it to continue from another position."""
        return self._position

    @position.setter
    def position(self, position: int) -> None:
        if isinstance(position, bool) or not isinstance(position, int):
            raise TypeError(f"position must be an integer, got {position!r} of type {type(position).__name__}.")
        if not 0 <= position <= self._last:
            raise ValueError(f"position must be between 0 and {self._last}, the number of batches; got {position}.")
        self._position = position

    @property
    def element_spec(self) -> Any:
        """The structure of a batch, with a `tf.TensorSpec` for each array, as for a `tf.data.Dataset`.

        The first dimension is None if some batches have fewer rows than others.
        """
        return self._spec(self.batch_size if self.batches_per_epoch == self.full_batches_per_epoch else None)

    @property
    def full_batch_spec(self) -> Any:
        """The element spec of a full batch."""
        return self._spec(self.batch_size)

    def _spec(self, size: int | None) -> Any:
        from fastsup.runtime import tensorflow

        return self._packed([tensorflow.TensorSpec([size, *array.shape[1:]], array.dtype) for array in self._arrays])

    @property
    def _last(self) -> float:
        return float("inf") if self._epochs is None else self._epochs * self.batches_per_epoch

    def __iter__(self) -> ArrayBatches:
        return self

    def __next__(self) -> Any:
        """Returns the next batch as NumPy arrays of shape [batch_size, ...], in the structure of `arrays`.

        Returns:
          Arrays that belong to the caller.

        Raises:
          StopIteration: If all batches were taken.
        """
        with self._lock:
            if self._position >= self._last:
                raise StopIteration
            epoch, batch = divmod(self._position, self.batches_per_epoch)
            self._position += 1
        first = batch * self.batch_size
        size = min(self.batch_size, self.rows - first)
        flat = [np.empty((size, *array.shape[1:]), array.dtype) for array in self._arrays]
        self._copy(epoch, first, flat)
        return self._packed(flat)

    def full_batches_from(self, position: int, limit: int) -> int:
        """Returns the number of consecutive batches with `batch_size` rows from a position on.

        Args:
          position: number of the first batch.
          limit: the largest number to return.
        """
        per_epoch, full = self.batches_per_epoch, self.full_batches_per_epoch
        limit = int(min(limit, self._last - position))
        return limit if full == per_epoch else max(0, min(limit, full - position % per_epoch))

    def fill(self, to: Sequence[NDArray[Any]], position: int, count: int) -> None:
        """Copies batches of `batch_size` rows. Any thread may call this.

        Args:
          to: arrays in the order of `arrays`, each of shape [at least count, batch_size, ...].
          position: number of the first batch.
          count: number of batches, at most `full_batches_from(position, count)`.
        """
        done = 0
        while done < count:
            epoch, batch = divmod(position + done, self.batches_per_epoch)
            here = min(count - done, self.batches_per_epoch - batch)
            rows = here * self.batch_size
            parts = [array[done : done + here].reshape(rows, *array.shape[2:]) for array in to]
            self._copy(epoch, batch * self.batch_size, parts)
            done += here

    def _copy(self, epoch: int, first: int, to: list[NDArray[Any]]) -> None:
        """Copies the rows of an epoch, starting at a position in its order."""
        size = len(to[0])
        seed = self.seed
        if seed is None:
            for part, array in zip(to, self._arrays, strict=True):
                part[...] = array[first : first + size]
            return
        rows = self._order(seed, epoch)[first : first + size]
        for part, array, as_bytes in zip(to, self._arrays, self._as_bytes, strict=True):
            if as_bytes is None:
                array.take(rows, axis=0, out=part)
            else:
                take_rows(_bytes_of(part), as_bytes, rows)

    def _order(self, seed: int, epoch: int) -> NDArray[np.int64]:
        """Returns the order of the rows in an epoch."""
        order = self._orders.get((seed, epoch))
        if order is None:
            random = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch])))
            order = random.permutation(self.rows).astype(np.int64, copy=False)
            with self._lock:
                self._orders[seed, epoch] = order
                for key in list(self._orders)[:-_ORDERS]:
                    del self._orders[key]
        return order

    def state_dict(self) -> dict[str, Any]:
        """Returns the position, the seed and the sizes, for a `fastsup.loop.Checkpoints`."""
        return {"position": self._position, "seed": self.seed, "rows": self.rows, "batch_size": self.batch_size}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resumes from a saved position.

        Args:
          state: the result of `state_dict`.

        Raises:
          ValueError: If the position doesn't exist, is that of other batches, or only one of the two objects uses
            `shuffle`.
        """
        check_position(state, ("position", "seed"), "fastsup.ArrayBatches")
        sizes = state.get("rows", self.rows), state.get("batch_size", self.batch_size)
        if sizes != (self.rows, self.batch_size):
            _logger.warning(
                "The checkpoint has the position in %d rows with batch_size=%d, but there are %d rows and "
                "batch_size=%d: training continues at other rows. To train on other data from its first batch, use "
                "another directory.",
                *sizes,
                self.rows,
                self.batch_size,
            )
        if (state["seed"] is None) != (self.seed is None):
            raise ValueError(
                f"shuffle must be {state['seed'] is not None}, as when the checkpoint was saved, to resume from its "
                "position."
            )
        self.seed = state["seed"]
        self.position = state["position"]

    def serialize(self) -> str:
        """Returns the result of `state_dict` as text, for a `tf.train.Checkpoint`."""
        return json.dumps(self.state_dict())

    def deserialize(self, string_value: str) -> None:
        """Resumes from a saved position, like `load_state_dict`.

        Args:
          string_value: the result of `serialize`.

        Raises:
          ValueError: As for `load_state_dict`.
        """
        self.load_state_dict(json.loads(string_value))


def _integer(name: str, value: Any, what: str = "an integer") -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be {what}, got {value!r} of type {type(value).__name__}.")
    return int(value)


def _positive(name: str, value: Any) -> int:
    if _integer(name, value) < 1:
        raise ValueError(f"{name} must be positive, got {value!r}.")
    return int(value)


def _seed(seed: Any) -> int:
    if seed is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    if _integer("seed", seed, "an integer or None") < 0:
        raise ValueError(f"seed must not be negative, got {seed!r}.")
    return int(seed)


def _packer(structure: Any) -> Callable[[Sequence[Any]], Any]:
    """Returns a function that packs a flat list into a structure. Common structures avoid the cost of `tf.nest`."""
    if not nest.is_nested(structure):
        return lambda flat: flat[0]
    is_flat = not any(
        nest.is_nested(leaf) for leaf in (structure.values() if isinstance(structure, dict) else structure)
    )
    if type(structure) is tuple and is_flat:
        return tuple
    if type(structure) is dict and is_flat:
        keys = sorted(structure)
        return lambda flat: dict(zip(keys, flat, strict=True))
    shape = nest.map_structure(lambda leaf: 0, structure)
    return lambda flat: nest.pack_sequence_as(shape, flat)


def _contiguous(leaf: Any) -> NDArray[Any]:
    array = np.asarray(leaf)
    if array.ndim == 0:
        raise ValueError(
            f"arrays must have a first dimension, which counts the rows; got {leaf!r}. For a list of rows, pass "
            "np.asarray(rows)."
        )
    return np.ascontiguousarray(array)


def _rows_of(arrays: list[NDArray[Any]]) -> int:
    if not arrays:
        raise ValueError("arrays must hold at least one array, got none.")
    counts = {len(array) for array in arrays}
    if len(counts) > 1:
        raise ValueError(f"arrays must have as many rows as each other, got {', '.join(map(str, sorted(counts)))}.")
    if counts == {0}:
        raise ValueError("arrays must have at least one row, got 0.")
    return counts.pop()


def _bytes_of(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Returns a contiguous array as bytes, of shape [rows, bytes per row]."""
    flat = array.reshape(len(array), -1)
    return flat.view(np.uint8)
