"""Many steps of a function in one call: a loop that XLA compiles together with the step."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import errors_impl
from tensorflow.python.util import nest

from fastsup.eager.function import Function
from fastsup.steps.bind import as_arguments

__all__ = ["FusedFunction", "NotFusable"]

# Results of all steps are kept for this many steps, where something takes them.
MOST_RESULTS = 256


class NotFusable(Exception):
    """The reason why several steps can't be made in one call."""


class FusedFunction:
    """A function whose call makes several steps. The number of steps is an argument: XLA compiles it once.

    Args:
      step: the `tf.function` of one step.
      args, kwargs: arguments of a step that come before a batch, and keyword arguments. Calls may have others of the
        same types.
      batch: the structure of `tf.TensorSpec`s of a batch; None for a step that takes no batch. Of a tuple, each
        element is an argument.
      name: what messages call it.
      traced_as: the same with the shapes that the step is traced with, of which some dimensions may be None. None:
        those of `batch`.

    Raises:
      NotFusable: the shape of a result isn't known, or a result isn't a tensor.
    """

    def __init__(
        self, step: Any, args: tuple[Any, ...], kwargs: dict[str, Any], batch: Any, name: str, traced_as: Any = None
    ) -> None:
        self._step = step
        self._batch = batch
        self._traced_as = batch if traced_as is None else traced_as
        self._specs = self._specs_of_results(args, kwargs)
        self.name = name
        self._numbers: dict[int, Any] = {}
        # By whether they return the results of all steps.
        self._loops = {with_results: self._compiled(with_results) for with_results in (False, True)}

    def __call__(
        self,
        first: int,
        steps: int,
        stacked: Sequence[Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        with_results: bool,
    ) -> tuple[Any, Any]:
        """Makes steps.

        Args:
          first: the place of the first step's batch in `stacked`.
          steps: the number of steps; with `with_results` at most `MOST_RESULTS`.
          stacked: for each array of a batch, a tensor with the batches of many steps.
          args, kwargs: the arguments that come before a batch, and the keyword arguments; the same in all steps.
          with_results: whether the results of all steps are returned.

        Returns:
          The result of the last step; and the results of all steps, as NumPy arrays of shape [steps, ...] in its
          structure, or None.

        Raises:
          tf.errors.OpError: XLA can't compile the loop, or it has failed. No variable has changed.
        """
        loop = self._loops[with_results]
        last, results = loop(self._number(first), self._number(steps), list(stacked), args, kwargs)
        if not with_results:
            return last, None
        return last, nest.map_structure(lambda value: value.numpy()[:steps], results, expand_composites=True)

    def _number(self, value: int) -> Any:
        tensor = self._numbers.get(value)
        if tensor is None:
            if len(self._numbers) >= 2 * MOST_RESULTS:
                self._numbers.clear()
            with tf.device("CPU:0"):
                tensor = self._numbers[value] = tf.constant(value, tf.int32)
        return tensor

    def _compiled(self, with_results: bool) -> Function:
        loop = functools.partial(self._many, with_results)
        function = Function(tf.function(loop, autograph=False, jit_compile=True), "inline", "silent")
        function.__name__ = self.name
        return function

    def _specs_of_results(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        traced_as = self._traced_as
        batch = () if traced_as is None else as_arguments(traced_as)
        concrete = self._step.get_concrete_function(*args, *batch, **kwargs)
        outputs = concrete.structured_outputs
        for leaf in nest.flatten(outputs, expand_composites=True):
            if leaf is not None and not (isinstance(leaf, tf.TensorSpec | tf.Tensor) and leaf.shape.is_fully_defined()):
                raise NotFusable(f"the shape of the result {leaf!r} isn't known before the step has run")
        return outputs

    def _leaves(self, result: Any) -> list[Any]:
        return [leaf for leaf in nest.flatten(result, expand_composites=True) if leaf is not None]

    def _packed(self, leaves: Sequence[Any]) -> Any:
        rest = iter(leaves)
        flat = [None if leaf is None else next(rest) for leaf in nest.flatten(self._specs, expand_composites=True)]
        return nest.pack_sequence_as(self._specs, flat, expand_composites=True)

    def _run_one(self, place: Any, stacked: Sequence[Any], args: Any, kwargs: Any) -> list[Any]:
        if self._batch is None:
            return self._leaves(self._step(*args, **kwargs))
        taken = zip(stacked, nest.flatten(self._traced_as), strict=True)
        batch = nest.pack_sequence_as(self._batch, [_traced(tensor[place], spec) for tensor, spec in taken])
        return self._leaves(self._step(*args, *as_arguments(batch), **kwargs))

    def _many(self, with_results: bool, first: Any, steps: Any, stacked: Any, args: Any, kwargs: Any) -> Any:
        """The loop. Returns the result of the last step, and those of all steps or None."""
        specs = self._leaves(self._specs)
        nothing = [tf.zeros(leaf.shape, leaf.dtype) for leaf in specs]
        taken = specs if with_results else []
        arrays = [tf.TensorArray(leaf.dtype, MOST_RESULTS, element_shape=leaf.shape) for leaf in taken]

        def one(place: Any, last: Any, arrays: Any) -> Any:
            last = self._run_one(place, stacked, args, kwargs)
            arrays = [array.write(place - first, leaf) for array, leaf in zip(arrays, last, strict=False)]
            return place + 1, last, arrays

        _, last, arrays = tf.while_loop(lambda place, *_: place < first + steps, one, (first, nothing, arrays))
        return self._packed(last), self._packed([array.stack() for array in arrays]) if with_results else None


def _traced(tensor: Any, spec: Any) -> Any:
    """A tensor of which the trace knows the shape of a spec alone. XLA knows its shape."""
    if spec.shape.is_fully_defined():
        return tensor
    return tf.raw_ops.PlaceholderWithDefault(input=tensor, shape=spec.shape)


def reason_of(error: Exception) -> str:
    """Why XLA doesn't compile a loop, with the operation and its line, from TensorFlow's error.

    Args:
      error: the error.
    """
    message = error.message if isinstance(error, errors_impl.OpError) else str(error)
    lines = [line.strip() for line in str(message).splitlines() if line.strip()]
    return " ".join(lines[:3])
