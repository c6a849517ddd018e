"""Batches of several steps, stacked in aligned memory that tensors share: what steps in one call take theirs from."""

from __future__ import annotations

import functools
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.python.eager import context
from tensorflow.python.framework import errors_impl, ops

from fastsup.common.tensorflow_errors import is_end_of_input
from fastsup.eager.function import Function
from fastsup.eager.function import function as lift
from fastsup.steps.array_batches import ArrayBatches

__all__ = ["ArrayBlocks", "Buffers", "IteratorBlocks", "next_element"]

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
    """

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

    def take(self, limit: int) -> tuple[list[Any], int, int]:
        """The batches that come next.

        Args:
          limit: the most that are wanted.

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
        """Says that steps have taken batches.

        Args:
          count: how many.
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


class IteratorBlocks:
    """Blocks of an iterator of tf.data.

    Nothing is taken from the iterator but what the next steps take: a checkpoint of it has its place.

    Args:
      iterator: the `tf.data.Iterator`.
    """

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator
        self._spec: Any = None
        self._specs: list[Any] = []
        self._buffers: Buffers | None = None
        self._size = 1
        self._first, self._count = 0, 0
        # What comes after the block: an element of another shape, as a flat list, or an error.
        self._left: list[Any] | None = None
        self._error: Exception | None = None

    @property
    def spec(self) -> Any:
        """The structure of `tf.TensorSpec`s of the batches in blocks: those of the shape of the first batch."""
        if self._spec is None:
            self._peek()
            if self._left is None:
                raise NotImplementedError("the input has no batch")
            self._specs = [tf.TensorSpec(value.shape, value.dtype) for value in self._left]
            self._spec = tf.nest.pack_sequence_as(self._iterator.element_spec, self._specs)
            self._size = batches_in_block(self._specs)
            self._buffers = Buffers(self._specs, self._size)
        return self._spec

    def __next__(self) -> Any:
        if self._count and self._buffers is not None:
            # A copy: a slice of a tensor may share its memory.
            flat = [tf.constant(array[self._first]) for array in self._buffers.arrays]
            self.taken(1)
        else:
            self._peek()
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            flat, self._left = self._left or [], None
        return tf.nest.pack_sequence_as(self._iterator.element_spec, flat)

    def take(self, limit: int) -> tuple[list[Any], int, int]:
        """As `ArrayBlocks.take`. An error of the iterator is raised by `next`, after the batches before it."""
        if self._buffers is None:
            return [], 0, 0
        if not self._count:
            self._first = 0
            while self._count < min(limit, self._size) and self._peek_fits():
                for array, value in zip(self._buffers.arrays, self._left or (), strict=True):
                    array[self._count] = value.numpy()
                self._left = None
                self._count += 1
        return self._buffers.tensors(), self._first, min(limit, self._count)

    def taken(self, count: int) -> None:
        """As `ArrayBlocks.taken`."""
        self._first += count
        self._count -= count

    def _peek(self) -> None:
        """Takes the next element, unless one is left, or an error."""
        if self._left is not None or self._error is not None:
            return
        try:
            self._left = tf.nest.flatten(next_element(self._iterator))
        except Exception as error:
            self._error = error

    def _peek_fits(self) -> bool:
        """Whether there is a next element, of the shape of those in blocks."""
        self._peek()
        if self._left is None:
            return False
        return all(value.shape == spec.shape for value, spec in zip(self._left, self._specs, strict=True))
