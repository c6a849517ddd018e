"""Lifts the functions that a Keras model calls for each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context

from fastsup.eager.function import Function, lifted_function, tf_function
from fastsup.steps.batches import next_element

__all__ = ["LiftedPredictFunction", "LiftedStepFunction", "NotAccelerated", "lift_step_function"]


class NotAccelerated(Exception):
    """The reason why a model's function isn't accelerated."""


class LiftedStepFunction:
    """Replaces a model's train or test function.

    In TensorFlow, Keras's function takes an execution's batches from the iterator, and returns an optional value, which
    eager operations then open. This class opens it inside the lifted graph.

    Args:
      original: Keras's function.
      on_iterator: Keras's `tf.function` of an iterator, which returns an optional.
      on_data: Keras's function of one batch.
      steps_per_execution: number of steps per execution.
      name: name in messages.
      options: arguments of `lifted_function`.
      jit_compile: Whether XLA compiles Keras's function of one batch, which is the only function that `on_data` calls.
      takes_batch: Whether Keras's function itself takes the batch of a single step and calls `on_data` with it, as
        since Keras 3.16. It is then traced with the shapes of batches.
    """

    def __init__(
        self,
        original: Any,
        on_iterator: Any,
        on_data: Any,
        steps_per_execution: int,
        name: str,
        options: dict[str, Any],
        jit_compile: bool | None,
        takes_batch: bool = False,
    ) -> None:
        self.original = original
        #: Whether the function takes one batch instead of an iterator.
        self.takes_batch: bool = takes_batch

        def one_step(iterator: Any) -> Any:
            return on_iterator(iterator).get_value()

        def steps(iterator: Any) -> Any:
            optional = on_iterator(iterator)
            has_value = optional.has_value()
            return has_value, tf.cond(has_value, optional.get_value, lambda: _nothing_of(optional.element_spec))

        self._is_one_step = steps_per_execution == 1 and not takes_batch
        self._steps_per_execution = steps_per_execution
        on_iterators = one_step if self._is_one_step else steps
        #: The lifted function that takes an iterator, and the one that takes a batch.
        self.on_iterator: Function = _lifted(_traced(on_iterators), name, options)
        self.on_data: Function = _lifted(_traced(on_data, jit_compile), name, options)
        self._name, self._options = name, options
        #: The lifted traces of `on_data` that epochs run, by trace.
        self.traces: dict[Any, Function] = {}
        # The spec for which the last trace was found, and the trace's function. They are replaced together, because
        # there may be several threads.
        self._found: tuple[Any, Function | None] = None, None

    def trace_of(self, spec: Any) -> Function:
        """Returns the function of one batch that Keras runs for an iterator. A single batch might select another trace.

        Args:
          spec: the element spec of the iterator. It affects results: if the batch size is unknown, Keras gives batches
            of all sizes the same weight in the means of some losses.
        """
        if self.takes_batch:
            return self.on_data
        # TensorFlow selects the trace by the spec, among the existing traces. The selection takes longer than a small
        # step.
        traces = self.on_data.original.experimental_get_tracing_count()
        wanted = spec, traces, context.context().device_name
        found_for, function = self._found
        if function is None or wanted != found_for:
            concrete = self.on_data.original.get_concrete_function(spec)
            if concrete not in self.traces:
                self.traces[concrete] = _lifted(concrete, self._name, self._options)
            function = self.traces[concrete]
            self._found = wanted, function
        return function

    def __call__(self, iterator: Any) -> Any:
        """Runs an execution.

        Args:
          iterator: an iterator of `tf.data` or of a strategy, or an iterator of batches.

        Returns:
          The step's results, usually a dict of metrics.

        Raises:
          StopIteration: If the input has ended, and Keras's function raises it.
          tf.errors.OutOfRangeError: If the input has ended.
        """
        if self.takes_batch and isinstance(iterator, tf.data.Iterator):
            return self.on_data(next_element(iterator))
        if isinstance(iterator, tf.data.Iterator | tf.distribute.DistributedIterator):
            if self._is_one_step:
                return self.on_iterator(iterator)
            has_value, outputs = self.on_iterator(iterator)
            if not has_value:
                raise StopIteration
            return outputs
        for _, data in zip(range(self._steps_per_execution), iterator, strict=False):
            outputs = self.on_data(data)
        return outputs


class LiftedPredictFunction:
    """Replaces a model's predict function if an execution has one step.

    Args:
      original: Keras's `tf.function` of a list of one batch.
      name: name in messages.
      options: arguments of `lifted_function`.
      jit_compile: Whether Keras has XLA compile the step.
    """

    def __init__(self, original: Any, name: str, options: dict[str, Any], jit_compile: bool | None) -> None:
        self.original = original

        def on_data(batch: Any) -> Any:
            return original.python_function([batch])

        #: The lifted function that takes a list of one batch, and the one that takes a batch.
        self.on_list: Function = _lifted(original, name, options)
        self.on_data: Function = _lifted(_traced(on_data, jit_compile), name, options)

    def trace_of(self, spec: Any) -> Function:
        """Returns the function that runs one batch. Keras calls it with the batch's shapes."""
        return self.on_data

    def __call__(self, data: Any) -> Any:
        """Runs an execution. Has the signature of Keras's function."""
        return self.on_list(data)


def lift_step_function(
    kind: str, original: Any, steps_per_execution: int, name: str, options: dict[str, Any], jit_compile: bool | None
) -> Any:
    """Lifts the function that Keras created for training, evaluation or prediction.

    Args:
      kind: "train", "test" or "predict".
      original: the function.
      steps_per_execution: number of steps per execution.
      name: name in messages.
      options: arguments of `lifted_function`.
      jit_compile: Whether Keras has XLA compile the function.

    Returns:
      A callable with the same result: a `Function`, a `LiftedStepFunction` or a `LiftedPredictFunction`.

    Raises:
      NotAccelerated: If Keras didn't create the function.
    """
    if isinstance(original, tf.types.experimental.GenericFunction):
        # Keras's own function takes a list of batches. Since Keras 3.7, the functions of an iterator aren't
        # `tf.function`s.
        made_by = getattr(getattr(original, "python_function", None), "__module__", None) or ""
        if kind == "predict" and steps_per_execution == 1 and made_by.startswith("keras."):
            return LiftedPredictFunction(original, name, options, jit_compile)
        return _lifted(original, name, options)
    parts = _closure(original)
    on_iterator, on_data = parts.get("multi_step_on_iterator"), parts.get("one_step_on_data")
    if not isinstance(on_iterator, tf.types.experimental.GenericFunction) or not callable(on_data):
        raise NotAccelerated(f"{original!r} isn't a function created by Keras")
    takes_batch = steps_per_execution == 1 and "get_next_as_optional" in original.__code__.co_names
    return LiftedStepFunction(
        original, on_iterator, on_data, steps_per_execution, name, options, jit_compile, takes_batch
    )


def _lifted(function: Any, name: str, options: dict[str, Any]) -> Function:
    lifted = lifted_function(function, **options)
    lifted.__name__ = name
    return lifted


def _nothing_of(spec: Any) -> Any:
    """Returns values of a structure, as small as its shapes allow.

    Args:
      spec: the structure of type specs.
    """

    def nothing(part: Any) -> Any:
        return tf.zeros([size or 0 for size in part.shape or ()], part.dtype)

    return tf.nest.map_structure(nothing, spec, expand_composites=True)


def _traced(function: Callable[..., Any], jit_compile: bool | None = None) -> Any:
    """Returns the function as a `tf.function`, created like Keras's own."""
    unconverted = tf.autograph.experimental.do_not_convert(function)
    traced = tf_function(unconverted, reduce_retracing=True, jit_compile=jit_compile)
    # TensorFlow's warning about many traces names Keras's function, which this one calls while it is traced.
    traced._omit_frequent_tracing_warning = True
    return traced


def _closure(function: Callable[..., Any]) -> dict[str, Any]:
    """Returns the variables that a Python function captures from the enclosing function, by name."""
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    if code is None or cells is None:
        return {}
    return {name: cell.cell_contents for name, cell in zip(code.co_freevars, cells, strict=True)}
