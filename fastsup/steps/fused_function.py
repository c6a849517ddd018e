"""Many steps of a function in one call."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.util import nest

from fastsup.eager.function import Function
from fastsup.eager.function import function as lift
from fastsup.steps.bind import as_arguments
from fastsup.steps.fused_loop import FusedLoop

__all__ = ["FusedFunction"]

# Numbers of steps, and places of batches, whose tensors are kept.
_MOST_NUMBERS = 512


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
      counter: an integer variable that each call counts up by the number of its steps, or None.

    Raises:
      NotFusable: the shape of a result isn't known, or a result isn't a tensor.
    """

    def __init__(
        self,
        step: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        batch: Any,
        name: str,
        traced_as: Any = None,
        counter: Any = None,
    ) -> None:
        self._step = step
        self._batch = batch
        self._traced_as = batch if traced_as is None else traced_as
        self.name = name
        taken = () if self._traced_as is None else as_arguments(self._traced_as)
        concrete = step.get_concrete_function(*args, *taken, **kwargs)
        self._loop = FusedLoop(self._make_one, concrete.structured_outputs, counter)
        self._numbers: dict[int, Any] = {}
        # By whether they return the results of all steps.
        self._functions = {with_results: self._compiled(with_results) for with_results in (False, True)}

    @property
    def most_results(self) -> int:
        """The most steps of a call that returns the results of all: a matter of memory."""
        return self._loop.most_results

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
          steps: the number of steps; with `with_results` at most `most_results`.
          stacked: for each array of a batch, a tensor with the batches of many steps.
          args, kwargs: the arguments that come before a batch, and the keyword arguments; the same in all steps.
          with_results: whether the results of all steps are returned.

        Returns:
          The result of the last step; and the results of all steps, as NumPy arrays of shape [steps, ...] in its
          structure, or None.

        Raises:
          tf.errors.OpError: XLA can't compile the loop, or it has failed. No variable has changed.
        """
        function = self._functions[with_results]
        last, results = function(self._number(first), self._number(steps), list(stacked), args, kwargs)
        if not with_results:
            return last, None
        return last, _taken(results, steps)

    def _number(self, value: int) -> Any:
        tensor = self._numbers.get(value)
        if tensor is None:
            if len(self._numbers) >= _MOST_NUMBERS:
                self._numbers.clear()
            with tf.device("CPU:0"):
                tensor = self._numbers[value] = tf.constant(value, tf.int32)
        return tensor

    def _compiled(self, with_results: bool) -> Function:
        loop = functools.partial(self._loop.trace, with_results)
        function = lift(loop, autograph=False, jit_compile=True, executor="inline", fallback="silent")
        function.__name__ = self.name
        return function

    def _make_one(self, place: Any, stacked: Sequence[Any], args: Any, kwargs: Any) -> Any:
        if self._batch is None:
            return self._step(*args, **kwargs)
        taken = zip(stacked, nest.flatten(self._traced_as), strict=True)
        batch = nest.pack_sequence_as(self._batch, [_traced(tensor[place], spec) for tensor, spec in taken])
        return self._step(*args, *as_arguments(batch), **kwargs)


def _taken(results: Any, steps: int) -> Any:
    """The results of the first steps, as arrays."""
    if isinstance(results, tf.Tensor):
        return results.numpy()[:steps]
    if results is None:
        return None
    # What most steps return; TensorFlow's function for any structure costs more than a small step.
    if type(results) is dict:
        return {name: _taken(value, steps) for name, value in results.items()}
    if type(results) in (tuple, list):
        return type(results)([_taken(value, steps) for value in results])
    return nest.map_structure(
        lambda value: None if value is None else value.numpy()[:steps], results, expand_composites=True
    )


def _traced(tensor: Any, spec: Any) -> Any:
    """A tensor of which the trace knows the shape of a spec alone. XLA knows its shape."""
    if spec.shape.is_fully_defined():
        return tensor
    return tf.raw_ops.PlaceholderWithDefault(input=tensor, shape=spec.shape)
