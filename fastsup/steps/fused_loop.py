"""A loop of many steps, for XLA to compile together with the step. The number of steps is an argument."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import errors_impl
from tensorflow.python.util import nest

__all__ = ["FusedLoop", "NotFusable", "leaves_of", "reason_of"]

# The most steps whose results are kept, where something takes those of all steps, and the most bytes of them.
_MOST_RESULTS = 256
_MOST_RESULT_BYTES = 16 << 20


class NotFusable(Exception):
    """The reason why several steps can't be made in one call."""


def leaves_of(structure: Any) -> list[Any]:
    """The tensors of a structure, those of composite tensors too."""
    return [leaf for leaf in nest.flatten(structure, expand_composites=True) if leaf is not None]


class FusedLoop:
    """The loop.

    Args:
      step: makes a step, while the loop is traced: takes the list of the batch's tensors, and then the other arguments
        that `trace` is given, and returns the step's results.
      results: the structure of a step's results, as tensors or `tf.TensorSpec`s.
      counter: an integer variable to count up by the number of steps, or None.
      take: returns the list of the tensors of a batch, by its place and the other arguments; None for steps without.

    Attributes:
      most_results: the most steps whose results are kept.

    Raises:
      NotFusable: the shape of a result isn't known, or a result isn't a tensor.
    """

    def __init__(
        self,
        step: Callable[..., Any],
        results: Any,
        counter: Any = None,
        take: Callable[..., list[Any]] | None = None,
    ) -> None:
        self._step = step
        self._take = (lambda place, *arguments: []) if take is None else take
        self._results = results
        self._counter = counter
        for leaf in nest.flatten(results, expand_composites=True):
            if leaf is not None and not (isinstance(leaf, tf.TensorSpec | tf.Tensor) and leaf.shape.is_fully_defined()):
                raise NotFusable(f"the shape of the result {leaf!r} isn't known before the step has run")
        step_bytes = sum(leaf.shape.num_elements() * leaf.dtype.size for leaf in leaves_of(results))
        self.most_results: int = min(_MOST_RESULTS, _MOST_RESULT_BYTES // max(step_bytes, 1))

    def trace(self, with_results: bool, first: Any, steps: Any, *arguments: Any) -> tuple[Any, Any]:
        """Traces the loop.

        Args:
          with_results: whether the results of all steps are returned: there must be at most `most_results` then.
          first: the place of the first step's batch.
          steps: the number of steps.
          *arguments: the other arguments of the step.

        Returns:
          The results of the last step; and those of all, of shape [most_results, ...], or None.
        """
        specs = leaves_of(self._results)
        nothing = [tf.zeros(leaf.shape, leaf.dtype) for leaf in specs]
        taken = specs if with_results else []
        arrays = [tf.TensorArray(leaf.dtype, self.most_results, element_shape=leaf.shape) for leaf in taken]

        # The batch of a step is taken in the step before it. If not, XLA compiles the step together with the
        # taking, and adds up in another order than in a single step.
        def one(place: Any, batch: Any, last: Any, arrays: Any) -> Any:
            last = leaves_of(self._step(batch, *arguments))
            arrays = [array.write(place - first, leaf) for array, leaf in zip(arrays, last, strict=False)]
            return place + 1, self._take(place + 1, *arguments), last, arrays

        batch = self._take(first, *arguments)
        _, _, last, arrays = tf.while_loop(
            lambda place, *_: place < first + steps, one, (first, batch, nothing, arrays)
        )
        if self._counter is not None:
            self._counter.assign_add(tf.cast(steps, self._counter.dtype))
        return self._packed(last), self._packed([array.stack() for array in arrays]) if with_results else None

    def _packed(self, leaves: Sequence[Any]) -> Any:
        rest = iter(leaves)
        flat = [None if leaf is None else next(rest) for leaf in nest.flatten(self._results, expand_composites=True)]
        return nest.pack_sequence_as(self._results, flat, expand_composites=True)


def reason_of(error: Exception) -> str:
    """Why XLA doesn't compile a loop, with the operation and its line, from TensorFlow's error.

    Args:
      error: the error.
    """
    message = error.message if isinstance(error, errors_impl.OpError) else str(error)
    lines = [line.strip() for line in str(message).splitlines() if line.strip()]
    return " ".join(lines[:3])
