"""Batches in blocks, for steps in one call."""

from __future__ import annotations

import functools
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.python.eager import context
from tensorflow.python.framework import errors_impl, ops

from fastsup.common.errors import is_end_of_input
from fastsup.eager.function import Function
from fastsup.eager.function import function as lift
from fastsup.steps.array_batches import ArrayBatches

__all__ = ["ArrayBlocks", "Buffers", "IteratorBlocks", "next_element"]

# A block has at most this many batches, and about this many bytes, so that it stays in a cache while it is read.
MOST_BATCHES = 256
BLOCK_BYTES = 4 << 20
# Alignment that TensorFlow requires of memory that its tensors share.
ALIGNMENT = 128


def batches_in_block(specs: list[Any]) -> int:
    """Returns the number of batches in a block.

    Args:
      specs: the `tf.TensorSpec`s of the arrays of a batch.
    """
    batch_bytes = sum(spec.shape.num_elements() * spec.dtype.size for spec in specs)
    return int(max(1, min(MOST_BATCHES, BLOCK_BYTES // max(batch_bytes, 1))))


class Buffers:
    """Memory for the batches of a block, and tensors that share the memory.

    Args:
      specs: the `tf.TensorSpec`s of the arrays of a batch.
      count: number of batches.
    """

    def __init__(self, specs: list[Any], count: int) -> None:
        self._specs, self._count = specs, count
        self._tensors: list[Any] = []
        self._are_shared = False

    @functools.cached_property
    def arrays(self) -> list[NDArray[Any]]:
        """The memory, an array for each array of a batch. Allocated when a block is needed: many loops need none."""
        return [_aligned((self._count, *spec.shape.as_list()), spec.dtype.as_numpy_dtype) for spec in self._specs]

    def tensors(self) -> list[Any]:
        """Returns the tensors with the arrays' current content."""
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
    """Blocks of an `ArrayBatches`. A thread fills the next block.

    Each block starts at the position of `batches`, or after the previous block. A program may set or restore
    `batches.position` at any time.

    Args:
      batches: the batches.

    Attributes:
      batches: the argument.
      spec: the structure of `tf.TensorSpec`s of a batch.
      why_never, may_differ, owed, raises_next: as for `IteratorBlocks`.
    """

    why_never = ""
    may_differ = False  # Batches with other shapes are never in a block.
    owed = 0
    raises_next = False

    def __init__(self, batches: ArrayBatches) -> None:
        self.batches = batches
        self.spec: Any = batches.full_batch_spec
        specs = tf.nest.flatten(self.spec)
        self.size: int = batches_in_block(specs)
        self._filled, self._spare = Buffers(specs, self.size), Buffers(specs, self.size)
        # The seed of the order of the block in `_filled`, the number of the block's first batch, and its number of
        # batches.
        self._key: Any = None
        self._first, self._count = 0, 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fastsup-batches")
        self._next: tuple[Any, int, Future[int]] | None = None

    def __next__(self) -> Any:
        return next(self.batches)

    def tensors(self) -> list[Any]:
        """Returns the tensors that blocks share."""
        return self._filled.tensors()

    def take(self, limit: int, seconds: float = float("inf")) -> tuple[list[Any], int, int]:
        """Returns the next batches.

        Args:
          limit: maximum number of batches.
          seconds: as for `IteratorBlocks.take`. Has no effect, because a thread has copied the rows before.

        Returns:
          The tensors of a block, the place of the next batch in it, and the number of batches from there on, at most
          `limit`. The number is 0 if the next batch has fewer rows than others, or there is none. `next` then returns
          it, or raises an error.
        """
        position = self.batches.position
        if self._key != self.batches.seed or not self._first <= position < self._first + self._count:
            self._load(position)
        place = position - self._first
        return self._filled.tensors(), place, min(limit, self._count - place)

    def taken(self, count: int) -> None:
        """Records that steps use batches.

        Args:
          count: number of batches. A negative number returns the last ones.
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
    """Returns the function that takes the next element. All iterators share it, because each would trace its own."""
    return lift(lambda iterator: iterator.get_next(), autograph=False, fallback="silent")


def next_element(iterator: Any) -> Any:
    """Returns the next element of a tf.data iterator as eager tensors.

    Args:
      iterator: the `tf.data.Iterator`.

    Raises:
      StopIteration: If the input has ended.
      tf.errors.OpError: If the input failed.
    """
    try:
        return _getter()(iterator)
    except errors_impl.OutOfRangeError as error:
        if is_end_of_input(error):
            raise StopIteration from error
        raise


def why_not_stacked(element_spec: Any) -> str:
    """Returns the reason why batches can't be stacked into blocks, or "" if they can.

    Args:
      element_spec: the element spec of the batches' iterator.
    """
    for spec in tf.nest.flatten(element_spec):
        if not (isinstance(spec, tf.TensorSpec) and spec.dtype.is_numpy_compatible and spec.dtype != tf.string):
            return f"batches have an element that isn't a tensor of numbers: {spec}"
    return ""


class IteratorBlocks:
    """Blocks of a tf.data iterator.

    A program may save the iterator, or take elements from it, whenever its code runs. Elements are therefore taken only
    for steps of the current call. Before that call ends, the caller of `take` makes `next` return all elements that are
    `owed`.

    Args:
      iterator: the `tf.data.Iterator`.

    Attributes:
      why_never: reason why there can't be blocks, or "" if there can.
      may_differ: Whether a batch's shape may differ from the previous batch's.
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
        # The shapes of the last element, if it was the first one that didn't fit into the block.
        self._odd: list[Any] | None = None
        # The item after the block: an element of another shape, as a flat list, or an input error.
        self._held: list[Any] | None = None
        self._error: BaseException | None = None
        # The error of a step whose element was taken before the block.
        self._failure: BaseException | None = None

    @property
    def spec(self) -> Any:
        """The structure of `tf.TensorSpec`s of a batch in blocks, or None if it isn't known yet.

        Set it to its value in an earlier loop. Batches of another shape change it.
        """
        if self._spec is None and not self.may_differ and not self.why_never:
            self.spec = self._iterator.element_spec
        return self._spec

    @spec.setter
    def spec(self, spec: Any) -> None:
        self._spec, self._specs, self._buffers = spec, tf.nest.flatten(spec), None

    @property
    def size(self) -> int:
        """Maximum number of batches in a block."""
        return batches_in_block(self._specs)

    @property
    def owed(self) -> int:
        """Number of elements that were taken and that no step has used yet."""
        return self._count + (self._held is not None)

    @property
    def raises_next(self) -> bool:
        """True if `next` raises an error that already happened."""
        return self._failure is not None or (self._error is not None and not self.owed)

    def learn_spec(self) -> bool:
        """Takes the next element to determine `spec`. The element is then owed. Returns False if there is none."""
        self._peek()
        if self._held is None:
            return False
        self._note_shapes(self._held)
        return True

    def keep_failure(self, error: BaseException) -> None:
        """Makes the next call of `next` raise a step's error."""
        self._failure = error

    def __next__(self) -> Any:
        if self._failure is not None:
            error, self._failure = self._failure, None
            raise error
        if self._count and self._buffers is not None:
            # Copy it, because a slice of a tensor may share its memory.
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
        """Returns the tensors that blocks share. `spec` must be known."""
        if self._buffers is None:
            self._buffers = Buffers(self._specs, self.size)
        return self._buffers.tensors()

    def take(self, limit: int, seconds: float = float("inf")) -> tuple[list[Any], int, int]:
        """Returns the next batches, like `ArrayBlocks.take`. `next` raises an iterator's error after earlier batches.

        Args:
          limit: maximum number of batches.
          seconds: time after which no more elements are taken.
        """
        if self.spec is None or self._failure is not None:
            return [], 0, 0
        tensors = self.tensors()
        if not self._count:
            self._first = 0
            self._fill(min(limit, len(tensors[0])) if tensors else 0, perf_counter() + seconds)
        return tensors, self._first, min(limit, self._count)

    def taken(self, count: int) -> None:
        """Records that steps use batches, like `ArrayBlocks.taken`. A negative count returns the last ones."""
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
        """Takes the next element, unless an element or an error is already stored."""
        if self._held is not None or self._error is not None:
            return
        try:
            self._held = tf.nest.flatten(next_element(self._iterator))
        except StopIteration:
            return  # The iterator raises the error again, unless the program resets it first.
        except Exception as error:
            self._error = error
        except BaseException as error:
            if not self._count:
                raise
            self._error = error  # After a Ctrl-C, the steps of the taken batches run first.

    def _peek_fits(self) -> bool:
        """Returns True if there is a next element, with the same shape as those in blocks."""
        self._peek()
        if self._held is None:
            return False
        if self.may_differ and not _has_shapes(self._held, self._specs):
            return False
        self._has_fit, self._odd = True, None
        return True

    def _note_shapes(self, flat: list[Any]) -> None:
        """Uses an element's shape for blocks if there is none yet, or if this is the second element with that shape."""
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
