"""Batches: of arrays in memory (`fastsup.ArrayBatches`), in blocks for steps in one call, and as a step's arguments."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.python.eager import context
from tensorflow.python.framework import errors_impl, ops

from fastsup.common.errors import is_end_of_input
from fastsup.core.checks import check_flag
from fastsup.eager.function import Function
from fastsup.eager.function import function as lift
from fastsup.steps.native import take_rows

__all__ = ["ArrayBatches", "ArrayBlocks", "Buffers", "IteratorBlocks", "next_element"]

# Epochs whose order is kept: the one under way, and the next one, which a thread may fill a block from.
_ORDERS = 2


if TYPE_CHECKING:
    _State = object  # TensorFlow's classes have no known type.
else:
    _State = tf.train.experimental.PythonState


class ArrayBatches(_State):
    """Batches of rows of arrays, one after the other, in a new order in each epoch.

        batches = fastsup.ArrayBatches((images, labels), batch_size=32, shuffle=True, seed=1, epochs=None)
        for x, y in batches: ...

    It is an iterator, as `iter(tf.data.Dataset.from_tensor_slices(arrays).shuffle(rows).batch(32))` is one, for data
    that fits into memory: a batch costs what copying its rows costs. A `tf.train.Checkpoint` saves and restores its
    position, as that of an iterator of tf.data.

    Args:
      arrays: an array, or a tuple, list or dict of arrays, nested as you like, whose first dimensions are equal: that
        of the rows. Arrays that aren't contiguous in memory are copied once.
      batch_size: number of rows of a batch.
      shuffle: whether each epoch has another order of the rows. All rows are in each epoch, once.
      seed: integer from which the orders follow; the same seed gives the same orders. None: a random one.
      epochs: number of times that all rows are gone through, or None for no limit.
      drop_remainder: whether the last batch of an epoch is left out if it has fewer rows than the others.

    Attributes:
      rows: number of rows of the arrays.
      batch_size: the argument.
      batches_per_epoch: number of batches of an epoch.
      seed: the argument, or the one that was chosen; None without `shuffle`.

    Raises:
      TypeError: a number isn't an integer, or a flag isn't a bool.
      ValueError: `arrays` holds no array or no row, the arrays have different numbers of rows, `batch_size` or `epochs`
        isn't positive, `seed` is negative, or with `drop_remainder` a batch would have more rows than there are.
    """

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
        self._arrays: list[NDArray[Any]] = [_contiguous(leaf) for leaf in tf.nest.flatten(arrays)]
        self._packed = _packer(arrays)
        # None for an array of objects, or of rows without a number.
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
        #: Number of batches of an epoch that have `batch_size` rows. Those with fewer come last.
        self.full_batches_per_epoch: int = full
        self.seed: int | None = _seed(seed) if shuffle else None
        self._position = 0
        self._lock = threading.Lock()
        # By the seed, which a checkpoint may change, and the epoch.
        self._orders: dict[tuple[int, int], NDArray[np.int64]] = {}

    def __repr__(self) -> str:
        return f"<fastsup.ArrayBatches of {self.rows} rows, {self.batch_size} a batch, at batch {self._position}>"

    @property
    def position(self) -> int:
        """Number of batches that were taken. Set it to go on from another one."""
        return self._position

    @position.setter
    def position(self, position: int) -> None:
        if isinstance(position, bool) or not isinstance(position, int):
            raise TypeError(f"position must be an integer, got {position!r} of type {type(position).__name__}.")
        if not 0 <= position <= self._last:
            raise ValueError(f"position must lie between 0 and {self._last}, the number of batches; got {position}.")
        self._position = position

    @property
    def element_spec(self) -> Any:
        """The structure of a batch with a `tf.TensorSpec` for each array, as a `tf.data.Dataset` has it.

        The first dimension is None if some batches have fewer rows than others.
        """
        return self._spec(self.batch_size if self.batches_per_epoch == self.full_batches_per_epoch else None)

    @property
    def full_batch_spec(self) -> Any:
        """The same of a batch of `batch_size` rows."""
        return self._spec(self.batch_size)

    def _spec(self, size: int | None) -> Any:
        return self._packed([tf.TensorSpec([size, *array.shape[1:]], array.dtype) for array in self._arrays])

    @property
    def _last(self) -> float:
        return float("inf") if self._epochs is None else self._epochs * self.batches_per_epoch

    def __iter__(self) -> ArrayBatches:
        return self

    def __next__(self) -> Any:
        """The next batch, as NumPy arrays of shape [batch_size, ...] in the structure of `arrays`.

        Returns:
          Arrays that belong to the caller.

        Raises:
          StopIteration: all batches were taken.
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
        """Number of batches of `batch_size` rows that follow each other from a position on.

        Args:
          position: number of the first of them.
          limit: the largest number to return.
        """
        per_epoch, full = self.batches_per_epoch, self.full_batches_per_epoch
        limit = int(min(limit, self._last - position))
        return limit if full == per_epoch else max(0, min(limit, full - position % per_epoch))

    def fill(self, to: Sequence[NDArray[Any]], position: int, count: int) -> None:
        """Copies batches of `batch_size` rows. Any thread may call this.

        Args:
          to: an array for each one of `arrays`, of shape [at least count, batch_size, ...].
          position: number of the first batch.
          count: number of batches; at most `full_batches_from(position, count)`.
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
        """Copies the rows of an epoch from a place in its order on."""
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
        """The order of the rows in an epoch."""
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
        """The position and the seed, for a `fastsup.loop.Checkpoints`."""
        return {"position": self._position, "seed": self.seed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from a position that a checkpoint has.

        Args:
          state: what `state_dict` has returned.

        Raises:
          ValueError: the position doesn't exist, or only one of the two was made with `shuffle`.
        """
        if (state["seed"] is None) != (self.seed is None):
            raise ValueError(
                f"shuffle must be {state['seed'] is not None}, as it was when the checkpoint was saved, to go on from "
                "its position."
            )
        self.seed = state["seed"]
        self.position = state["position"]

    def serialize(self) -> str:
        """What `state_dict` returns, as text, for a `tf.train.Checkpoint`."""
        return json.dumps(self.state_dict())

    def deserialize(self, string_value: str) -> None:
        """Goes on from a position that a checkpoint has, as `load_state_dict`.

        Args:
          string_value: what `serialize` has returned.

        Raises:
          ValueError: as `load_state_dict`.
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
    """A function that puts a flat list into a structure: of the common ones, without the cost of `tf.nest`."""
    if not tf.nest.is_nested(structure):
        return lambda flat: flat[0]
    is_flat = not any(
        tf.nest.is_nested(leaf) for leaf in (structure.values() if isinstance(structure, dict) else structure)
    )
    if type(structure) is tuple and is_flat:
        return tuple
    if type(structure) is dict and is_flat:
        keys = sorted(structure)
        return lambda flat: dict(zip(keys, flat, strict=True))
    shape = tf.nest.map_structure(lambda leaf: 0, structure)
    return lambda flat: tf.nest.pack_sequence_as(shape, flat)


def _contiguous(leaf: Any) -> NDArray[Any]:
    array = np.asarray(leaf)
    if array.ndim == 0:
        raise ValueError(f"arrays must have a first dimension, that of the rows; got {leaf!r}.")
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
    """A contiguous array as bytes, of shape [rows, bytes of a row]."""
    flat = array.reshape(len(array), -1)
    return flat.view(np.uint8)


# A block has at most this many batches, and about this many bytes: it is read while it is in a cache.
MOST_BATCHES = 256
BLOCK_BYTES = 4 << 20
# What TensorFlow wants of memory that its tensors are to share.
ALIGNMENT = 128


def batches_in_block(specs: list[Any]) -> int:
    """How many batches a block has.

    Args:
      specs: the `tf.TensorSpec`s of the arrays of a batch.
    """
    batch_bytes = sum(spec.shape.num_elements() * spec.dtype.size for spec in specs)
    return int(max(1, min(MOST_BATCHES, BLOCK_BYTES // max(batch_bytes, 1))))


class Buffers:
    """Memory for the batches of a block, and the tensors that share it.

    Args:
      specs: the `tf.TensorSpec`s of the arrays of a batch.
      count: number of batches.
    """

    def __init__(self, specs: list[Any], count: int) -> None:
        self.arrays: list[NDArray[Any]] = [
            _aligned((count, *spec.shape.as_list()), spec.dtype.as_numpy_dtype) for spec in specs
        ]
        self._tensors: list[Any] = []
        self._are_shared = False

    def tensors(self) -> list[Any]:
        """The tensors of what the arrays hold now."""
        if not self._are_shared:
            device = context.context().device_name
            self._tensors = [ops.EagerTensor(array, device=device, dtype=None) for array in self.arrays]
            pairs = zip(self._tensors, self.arrays, strict=True)
            self._are_shared = all(np.shares_memory(tensor.numpy(), array) for tensor, array in pairs)
        return self._tensors


def _aligned(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


class ArrayBlocks:
    """Blocks of an `ArrayBatches`, of which a thread fills the next one.

    Each block begins where `batches` stands, or where the block before ends: a program may set `batches.position`, or
    restore it, at any time.

    Args:
      batches: the batches.

    Attributes:
      batches: the argument.
      spec: the structure of `tf.TensorSpec`s of a batch.
      why_never, may_differ, owed, raises_next: as of `IteratorBlocks`.
    """

    why_never = ""
    may_differ = False  # Those that do are never in a block.
    owed = 0
    raises_next = False

    def __init__(self, batches: ArrayBatches) -> None:
        self.batches = batches
        self.spec: Any = batches.full_batch_spec
        specs = tf.nest.flatten(self.spec)
        self.size: int = batches_in_block(specs)
        self._filled, self._spare = Buffers(specs, self.size), Buffers(specs, self.size)
        # Of the block in `_filled`: the seed of its order, the number of its first batch, and how many it has.
        self._key: Any = None
        self._first, self._count = 0, 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fastsup-batches")
        self._next: tuple[Any, int, Future[int]] | None = None

    def __next__(self) -> Any:
        return next(self.batches)

    def tensors(self) -> list[Any]:
        """The tensors that blocks share."""
        return self._filled.tensors()

    def take(self, limit: int, seconds: float = float("inf")) -> tuple[list[Any], int, int]:
        """The batches that come next.

        Args:
          limit: the most that are wanted.
          seconds: as for `IteratorBlocks.take`. A thread has copied the rows before.

        Returns:
          The tensors of a block, the place of the next batch in it, and how many batches there are from there on, at
          most `limit`. 0 if the next batch has fewer rows than others, or there is none: `next` then has it, or says
          so.
        """
        position = self.batches.position
        if self._key != self.batches.seed or not self._first <= position < self._first + self._count:
            self._load(position)
        place = position - self._first
        return self._filled.tensors(), place, min(limit, self._count - place)

    def taken(self, count: int) -> None:
        """Says that steps take batches.

        Args:
          count: how many; a negative one has the last ones back.
        """
        self.batches.position += count

    def _load(self, position: int) -> None:
        key, count = self.batches.seed, 0
        ahead, self._next = self._next, None
        if ahead is not None:
            count = ahead[2].result()
        if ahead is not None and ahead[:2] == (key, position):
            self._filled, self._spare = self._spare, self._filled
        else:
            count = self._fill(self._filled, position)
        self._key, self._first, self._count = key, position, count
        after = position + count
        if count:
            self._next = key, after, self._thread.submit(self._fill, self._spare, after)

    def _fill(self, buffers: Buffers, position: int) -> int:
        count = self.batches.full_batches_from(position, self.size)
        self.batches.fill(buffers.arrays, position, count)
        return count


@functools.cache
def _getter() -> Function:
    """The function that takes the next element. One for all iterators: each would otherwise trace its own."""
    return lift(lambda iterator: iterator.get_next(), autograph=False, fallback="silent")


def next_element(iterator: Any) -> Any:
    """The next element of an iterator of tf.data, as eager tensors.

    Args:
      iterator: the `tf.data.Iterator`.

    Raises:
      StopIteration: the input has ended.
      tf.errors.OpError: the input has failed.
    """
    try:
        return _getter()(iterator)
    except errors_impl.OutOfRangeError as error:
        if is_end_of_input(error):
            raise StopIteration from error
        raise


def why_not_stacked(element_spec: Any) -> str:
    """Why batches can't be stacked into blocks; an empty string if they can.

    Args:
      element_spec: that of the batches' iterator.
    """
    for spec in tf.nest.flatten(element_spec):
        if not (isinstance(spec, tf.TensorSpec) and spec.dtype.is_numpy_compatible and spec.dtype != tf.string):
            return f"batches have an element that isn't a tensor of numbers: {spec}"
    return ""


class IteratorBlocks:
    """Blocks of an iterator of tf.data.

    A program may save the iterator, or take from it, whenever its code runs. So an element is taken for a step of the
    call under way alone, and the caller of `take` has `next` return all that are `owed` before that call ends.

    Args:
      iterator: the `tf.data.Iterator`.

    Attributes:
      why_never: why there can't be blocks; an empty string if there can.
      may_differ: whether a batch may have another shape than the one before it.
    """

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator
        self._spec: Any = None
        self._specs: list[Any] = []
        self._buffers: Buffers | None = None
        self._first, self._count = 0, 0
        specs = tf.nest.flatten(iterator.element_spec)
        self.why_never: str = why_not_stacked(specs)
        self.may_differ: bool = not self.why_never and not all(spec.shape.is_fully_defined() for spec in specs)
        self._has_fit = False
        # The shapes of the last element, if it was the first one that did not fit into the block.
        self._odd: list[Any] | None = None
        # What comes after the block: an element of another shape, as a flat list, or an error of the input.
        self._held: list[Any] | None = None
        self._error: BaseException | None = None
        # The error of a step whose element was taken before the block.
        self._failure: BaseException | None = None

    @property
    def spec(self) -> Any:
        """The structure of `tf.TensorSpec`s of a batch in blocks; None if that isn't known yet.

        Set it to what it was in a loop before. Batches of another shape then change it when they come.
        """
        if self._spec is None and not self.may_differ and not self.why_never:
            self.spec = self._iterator.element_spec
        return self._spec

    @spec.setter
    def spec(self, spec: Any) -> None:
        self._spec, self._specs, self._buffers = spec, tf.nest.flatten(spec), None

    @property
    def size(self) -> int:
        """The most batches of a block."""
        return batches_in_block(self._specs)

    @property
    def owed(self) -> int:
        """The number of elements that were taken and that no step has used."""
        return self._count + (self._held is not None)

    @property
    def raises_next(self) -> bool:
        """True if `next` raises an error that has happened."""
        return self._failure is not None or (self._error is not None and not self.owed)

    def learn_spec(self) -> bool:
        """Takes the next element so that `spec` is known. The element is owed. False if there is none."""
        self._peek()
        if self._held is None:
            return False
        self._note_shapes(self._held)
        return True

    def keep_failure(self, error: BaseException) -> None:
        """Has the next call of `next` raise the error of a step."""
        self._failure = error

    def __next__(self) -> Any:
        if self._failure is not None:
            error, self._failure = self._failure, None
            raise error
        if self._count and self._buffers is not None:
            # A copy: a slice of a tensor may share its memory.
            flat = [tf.constant(array[self._first]) for array in self._buffers.arrays]
            self.taken(1)
        else:
            if self._held is None and self._error is not None:
                error, self._error = self._error, None
                raise error
            if self._held is None:
                self._held = tf.nest.flatten(next_element(self._iterator))
            flat, self._held = self._held, None
            if self.may_differ:
                self._note_shapes(flat)
        return tf.nest.pack_sequence_as(self._iterator.element_spec, flat)

    def tensors(self) -> list[Any]:
        """The tensors that blocks share. `spec` must be known."""
        if self._buffers is None:
            self._buffers = Buffers(self._specs, self.size)
        return self._buffers.tensors()

    def take(self, limit: int, seconds: float = float("inf")) -> tuple[list[Any], int, int]:
        """As `ArrayBlocks.take`. An error of the iterator is raised by `next`, after the batches before it.

        Args:
          limit: the most that are wanted.
          seconds: no more are taken after this time.
        """
        if self.spec is None or self._failure is not None:
            return [], 0, 0
        tensors = self.tensors()
        if not self._count:
            self._first = 0
            self._fill(min(limit, len(tensors[0])) if tensors else 0, perf_counter() + seconds)
        return tensors, self._first, min(limit, self._count)

    def taken(self, count: int) -> None:
        """As `ArrayBlocks.taken`. A negative count has the last ones back."""
        self._first += count
        self._count -= count

    def _fill(self, limit: int, until: float) -> None:
        assert self._buffers is not None
        while self._count < limit and self._peek_fits():
            for array, value in zip(self._buffers.arrays, self._held or (), strict=True):
                array[self._count] = value.numpy()
            self._count += 1
            self._held = None
            if perf_counter() >= until:
                return

    def _peek(self) -> None:
        """Takes the next element, unless one is held, or an error."""
        if self._held is not None or self._error is not None:
            return
        try:
            self._held = tf.nest.flatten(next_element(self._iterator))
        except StopIteration:
            return  # The iterator says it again, unless the program sets it back before.
        except Exception as error:
            self._error = error
        except BaseException as error:
            if not self._count:
                raise
            self._error = error  # Ctrl-C: the steps of what was taken come first.

    def _peek_fits(self) -> bool:
        """Whether there is a next element, of the shape of those in blocks."""
        self._peek()
        if self._held is None:
            return False
        if self.may_differ and not _has_shapes(self._held, self._specs):
            return False
        self._has_fit, self._odd = True, None
        return True

    def _note_shapes(self, flat: list[Any]) -> None:
        """Has blocks of the shape of an element, if there are none yet, or if it is the second one of that shape."""
        if self._spec is not None and _has_shapes(flat, self._specs):
            self._has_fit, self._odd = True, None
            return
        specs = [tf.TensorSpec(value.shape, value.dtype) for value in flat]
        if self._spec is None or not self._has_fit or (self._odd is not None and _has_shapes(flat, self._odd)):
            self.spec = tf.nest.pack_sequence_as(self._iterator.element_spec, specs)
            self._has_fit, self._odd = True, None
        else:
            self._odd = specs


def _has_shapes(flat: list[Any], others: list[Any]) -> bool:
    return all(value.shape == other.shape for value, other in zip(flat, others, strict=True))


def as_arguments(batch: Any) -> tuple[Any, ...]:
    """The arguments of a step function that a batch, or its structure of specs, becomes: a tuple becomes several."""
    return batch if type(batch) is tuple else (batch,)


class BatchCall:
    """Calls a step function with the next batch. `BatchStep` is one that can be fused."""

    def __init__(self, step: Any, batches: Iterator[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.step = step
        self.batches = batches
        self.args = args
        self.kwargs = kwargs

    def __call__(self) -> Any:
        return self.step(*self.args, *as_arguments(next(self.batches)), **self.kwargs)

    def __repr__(self) -> str:
        return f"<fastsup.bind_batches of {self.step!r} and {self.batches!r}>"
