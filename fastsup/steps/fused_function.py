"""Many steps of a function in one call: a loop that XLA compiles together with the step."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import errors_impl
from tensorflow.python.util import nest

from fastsup.eager.function import Function
from fastsup.eager.function import function as lift
from fastsup.steps.batch_call import as_arguments

__all__ = ["FusedFunction", "FusedLoop", "NotFusable", "leaves_of", "reason_of"]

# Maximum number of step numbers and batch places whose tensors are kept.
_MOST_NUMBERS = 512


class FusedFunction:
    """A function that runs several steps per call. The number of steps is an argument, so XLA compiles it once.

    Args:
      step: the `tf.function` of one step.
      args, kwargs: arguments of a step before the batch, and keyword arguments. Calls may use others of the same types.
      batch: the structure of `tf.TensorSpec`s of a batch, or None for a step without batches. Each element of a tuple
        is an argument.
      name: name in messages.
      traced_as: the structure with the shapes for tracing the step, in which dimensions may be None. If None, uses
        `batch`.

    Raises:
      NotFusable: If the shape of a result is unknown, or a result isn't a tensor.
    """

    def __init__(
        self,
        step: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        batch: Any,
        name: str,
        traced_as: Any = None,
    ) -> None:
        self._step = step
        self._batch = batch
        self._traced_as = batch if traced_as is None else traced_as
        self.name = name
        taken = () if self._traced_as is None else as_arguments(self._traced_as)
        concrete = step.get_concrete_function(*args, *taken, **kwargs)
        self._loop = FusedLoop(self._make_one, concrete.structured_outputs, _batch_at)
        self._numbers: dict[int, Any] = {}
        # The compiled functions, by whether they return the results of all steps.
        self._functions = {with_results: self._compiled(with_results) for with_results in (False, True)}

    @property
    def most_results(self) -> int:
        """Maximum number of steps in a call that returns all results, limited by memory."""
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
        """Runs steps.

        Args:
          first: place of the first step's batch in `stacked`.
          steps: number of steps. With `with_results`, at most `most_results`.
          stacked: for each array of a batch, a tensor with the batches of many steps.
          args, kwargs: the arguments before a batch, and the keyword arguments. They are the same in all steps.
          with_results: Whether to return the results of all steps.

        Returns:
          The last step's result, and the results of all steps as NumPy arrays of shape [steps, ...] in the same
          structure, or None.

        Raises:
          tf.errors.OpError: If XLA can't compile the loop, or the loop failed. No variable has changed.
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

    def _make_one(self, taken: Sequence[Any], stacked: Sequence[Any], args: Any, kwargs: Any) -> Any:
        if self._batch is None:
            return self._step(*args, **kwargs)
        pairs = zip(taken, nest.flatten(self._traced_as), strict=True)
        batch = nest.pack_sequence_as(self._batch, [_traced(tensor, spec) for tensor, spec in pairs])
        return self._step(*args, *as_arguments(batch), **kwargs)


def _batch_at(place: Any, stacked: Sequence[Any], args: Any, kwargs: Any) -> list[Any]:
    # Don't use tensor[place]. Outside a loop, XLA would treat the place as a constant, and compile the loop for each
    # place.
    return [tf.gather(tensor, place) for tensor in stacked]


def _taken(results: Any, steps: int) -> Any:
    """Returns the results of the first steps, as arrays."""
    if isinstance(results, tf.Tensor):
        return results.numpy()[:steps]
    if results is None:
        return None
    # The most common results. TensorFlow's function for any structure costs more than a small step.
    if type(results) is dict:
        return {name: _taken(value, steps) for name, value in results.items()}
    if type(results) in (tuple, list):
        return type(results)([_taken(value, steps) for value in results])
    return nest.map_structure(
        lambda value: None if value is None else value.numpy()[:steps], results, expand_composites=True
    )


def _traced(tensor: Any, spec: Any) -> Any:
    """Returns a tensor that has only a spec's shape in the trace. XLA knows its shape."""
    if spec.shape.is_fully_defined():
        return tensor
    return tf.raw_ops.PlaceholderWithDefault(input=tensor, shape=spec.shape)


# Maximum number of steps whose results are kept if a hook reads all of them, and their maximum size in bytes.
_MOST_RESULTS = 256
_MOST_RESULT_BYTES = 16 << 20


class NotFusable(Exception):
    """The reason why several steps can't run in one call."""


def leaves_of(structure: Any) -> list[Any]:
    """Returns the tensors in a structure, including the components of composite tensors."""
    return [leaf for leaf in nest.flatten(structure, expand_composites=True) if leaf is not None]


class FusedLoop:
    """A traced loop of steps.

    Args:
      step: function that traces a step in the loop. It takes the list of the batch's tensors and the other arguments of
        `trace`, and returns the step's results.
      results: the structure of a step's results, as tensors or `tf.TensorSpec`s.
      take: function of a batch's place and the other arguments that returns the list of the batch's tensors.

    Attributes:
      most_results: maximum number of steps whose results are kept.

    Raises:
      NotFusable: If the shape of a result is unknown, or a result isn't a tensor.
    """

    def __init__(
        self,
        step: Callable[..., Any],
        results: Any,
        take: Callable[..., list[Any]],
    ) -> None:
        self._step = step
        self._take = take
        self._results = results
        for leaf in nest.flatten(results, expand_composites=True):
            if leaf is not None and not (isinstance(leaf, tf.TensorSpec | tf.Tensor) and leaf.shape.is_fully_defined()):
                raise NotFusable(f"the shape of the result {leaf!r} isn't known before the step runs")
        step_bytes = sum(leaf.shape.num_elements() * leaf.dtype.size for leaf in leaves_of(results))
        self.most_results: int = min(_MOST_RESULTS, _MOST_RESULT_BYTES // max(step_bytes, 1))

    def trace(self, with_results: bool, first: Any, steps: Any, *arguments: Any) -> tuple[Any, Any]:
        """Traces the loop.

        Args:
          with_results: Whether to return the results of all steps, which requires at most `most_results` steps.
          first: place of the first step's batch.
          steps: number of steps.
          *arguments: the other arguments of the step.

        Returns:
          The last step's results, and all results of shape [most_results, ...] or None.
        """
        specs = leaves_of(self._results)
        nothing = [tf.zeros(leaf.shape, leaf.dtype) for leaf in specs]
        taken = specs if with_results else []
        arrays = [tf.TensorArray(leaf.dtype, self.most_results, element_shape=leaf.shape) for leaf in taken]

        # Take each step's batch in the previous step. Otherwise XLA compiles the step together with the taking, and the
        # sums are computed in a different order than in a single step.
        def one(place: Any, batch: Any, last: Any, arrays: Any) -> Any:
            last = leaves_of(self._step(batch, *arguments))
            arrays = [array.write(place - first, leaf) for array, leaf in zip(arrays, last, strict=False)]
            return place + 1, self._take(place + 1, *arguments), last, arrays

        batch = self._take(first, *arguments)
        _, _, last, arrays = tf.while_loop(
            lambda place, *_: place < first + steps, one, (first, batch, nothing, arrays)
        )
        return self._packed(last), self._packed([array.stack() for array in arrays]) if with_results else None

    def _packed(self, leaves: Sequence[Any]) -> Any:
        rest = iter(leaves)
        flat = [None if leaf is None else next(rest) for leaf in nest.flatten(self._results, expand_composites=True)]
        return nest.pack_sequence_as(self._results, flat, expand_composites=True)


def reason_of(error: Exception) -> str:
    """Returns the reason why XLA doesn't compile a loop, with the operation and its line, from TensorFlow's error.

    Args:
      error: the error.
    """
    message = error.message if isinstance(error, errors_impl.OpError) else str(error)
    lines = [line.strip() for line in str(message).splitlines() if line.strip()]
    return " ".join(lines[:3])
