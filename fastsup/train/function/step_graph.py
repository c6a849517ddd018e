"""The graph of a step function for a session: its results, its global step, its arguments."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import concrete_function
from tensorflow.python.framework import constant_op, dtypes, ops
from tensorflow.python.framework import tensor as tensor_lib
from tensorflow.python.ops import array_ops, control_flow_ops, resource_variable_ops, state_ops, variables
from tensorflow.python.ops import gen_resource_variable_ops as gen
from tensorflow.python.training import training_util
from tensorflow.python.util import nest

from fastsup.eager import bridge
from fastsup.eager.devices.arguments import variables_on_devices, why_not_held
from fastsup.eager.devices.variable_handle import VariableHandle, variable_handle
from fastsup.eager.function import Function, function
from fastsup.eager.lift import LiftedGraph, NotLiftable
from fastsup.eager.lifted_calls import scope_of_devices
from fastsup.eager.tracing import ConcreteTracer, FunctionTracer
from fastsup.steps.bind import BatchStep, BoundStep, as_arguments, without_instance
from fastsup.steps.fused_calls import fused_calls
from fastsup.train.session.graph_loop import StepsAtOnce

__all__ = ["StepGraph"]

# TensorFlow's words. What the function itself raises while it is traced is another TypeError.
_WRONG_ARGUMENTS = "Binding inputs to tf.function failed"
_OPAQUE = (dtypes.resource, dtypes.variant)
_NAME_OF_OPERATION = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.-]*")
_READS = ("ReadVariableOp", "ResourceGather", "VarIsInitializedOp", "VariableShape")


class StepGraph:
    """A step function as a graph that a session can run."""

    def __init__(self, step: Any, global_step: Any, fuse: str) -> None:
        self._step, self._args, self._kwargs = _parts_of(step)
        self._batches: Any = step.batches if isinstance(step, BatchStep) else None
        traced_args = (*self._args, *_specs_of(self._batches))
        original = self._step.original
        is_concrete = isinstance(original, concrete_function.ConcreteFunction)
        try:
            self._concrete = original if is_concrete else original.get_concrete_function(*traced_args, **self._kwargs)
        except TypeError as error:
            if not str(error).startswith(_WRONG_ARGUMENTS):
                raise
            cause = str(error).rstrip(".")
            raise TypeError(
                f"The arguments of {self._step.__name__} aren't known: {cause}. Pass fastsup.bind(step, *args), or a "
                "function with an input_signature."
            ) from error
        self._tracer = ConcreteTracer(original) if is_concrete else FunctionTracer(original)
        self.lifted: LiftedGraph = self._lift()
        self.global_step: Any = _variable_of(global_step)
        counts_itself = global_step is not None
        if counts_itself and not any(self.global_step.handle is taken for taken in self._concrete.captured_inputs):
            raise ValueError(
                f"global_step must be a variable that {self._step.__name__} counts up, got {global_step!r}, which it "
                "doesn't use. Pass None for a count of the steps."
            )
        if counts_itself and self._only_reads(self.global_step):
            raise ValueError(
                f"global_step must be a variable that {self._step.__name__} counts up, got {global_step!r}, which it "
                "only reads. Pass None for a count of the steps."
            )
        with self.lifted.graph.as_default():
            self.outputs: Any = self._structure()
            self._leaves: list[Any] = [leaf for leaf in nest.flatten(self.outputs) if leaf is not None]
            self.fetches: tuple[list[Any], Any] = (self._leaves, self._count_steps(counts_itself))
            self._name_results()
        calls = fused_calls(step, fuse, None if counts_itself else self.global_step)
        self.steps_at_once: StepsAtOnce | str
        if isinstance(calls, str):
            self.steps_at_once = calls
        else:
            self._batches = self._batches and calls.blocks
            self.steps_at_once = StepsAtOnce(
                calls, self.lifted.graph, self._leaves, False, lambda values: (values, None)
            )
        self._is_bound = bool(self._args or self._kwargs) or self._batches is not None
        self._bound_feeds: dict[Any, Any] | None = None
        if self._is_bound and self._batches is None:
            self._bound_feeds = self._feeds_of(self._args, self._kwargs)

    def __repr__(self) -> str:
        return repr(self._step)

    def _lift(self) -> LiftedGraph:
        reason = bridge.unavailable_reason() or bridge.forked_reason()
        if context.is_async():
            reason = "eager operations run asynchronously, and a session wouldn't wait for them"
        if not reason:
            try:
                # Hooks have their own runs, with other feeds.
                lifted = LiftedGraph(self._concrete, is_fed_by_name=True, variables=self._variables_of_devices())
                if all(tensor.dtype not in _OPAQUE for tensor in lifted.outputs):
                    return lifted
                reason = "it returns a resource or a variant, which a session can't fetch"
            except NotLiftable as error:
                reason = str(error)
        raise RuntimeError(
            f"{self._step.__name__} can't be run by a session: {reason}. fastsup.loop.StepLoop calls any function."
        )

    def _variables_of_devices(self) -> dict[int, VariableHandle]:
        """The variables of devices that the step is bound to. Any others must be on the first CPU device."""
        if scope_of_devices() is None or self._batches is not None or not (self._args or self._kwargs):
            return {}
        return variables_on_devices(self._inputs(self._args, self._kwargs))

    def _inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with context.eager_mode():
            return self._tracer.inputs(self._concrete, args, kwargs)

    def _only_reads(self, variable: Any) -> bool:
        graph = self._concrete.graph
        taken = [inner for outer, inner in graph.captures if outer is variable.handle]
        users = [operation for handle in taken for operation in handle.consumers()]
        return all(operation.type in _READS for operation in users)

    def _structure(self) -> Any:
        inner = self._concrete.graph.structured_outputs
        outputs = iter(self.lifted.outputs)
        flat = [None if leaf is None else next(outputs) for leaf in nest.flatten(inner, expand_composites=True)]
        return nest.pack_sequence_as(inner, flat, expand_composites=True)

    def _name_results(self) -> None:
        """Lets hooks ask for `{"loss": loss}` that the function returns by the name "loss"."""
        if not isinstance(self.outputs, dict):
            return
        graph = self.lifted.graph
        taken = {operation.name for operation in graph.get_operations()}
        for key, value in self.outputs.items():
            is_name = isinstance(key, str) and _NAME_OF_OPERATION.fullmatch(key)
            if is_name and key not in taken and isinstance(value, tensor_lib.Tensor):
                array_ops.identity(value, name=f"{key}/")

    def _count_steps(self, counts_itself: bool) -> Any:
        """Puts the global step into the graph. Returns the operation of a whole step."""
        counter = _in_graph(self.global_step)
        graph = self.lifted.graph
        graph.add_to_collection(ops.GraphKeys.GLOBAL_STEP, counter)
        graph.add_to_collection(training_util.GLOBAL_STEP_READ_KEY, counter.read_value() + 0)
        done = [*self.lifted.targets, *self.lifted.outputs]
        if counts_itself:
            return control_flow_ops.group(*done)
        with ops.control_dependencies(done):
            return state_ops.assign_add(counter, 1, use_locking=False).op

    def feeds(self, *args: Any, **kwargs: Any) -> dict[Any, Any] | None:
        """The feeds of one step."""
        if self._is_bound:
            if args or kwargs:
                raise TypeError(f"{self._step.__name__} is bound to its arguments, so a step takes none.")
            return self._bound_feeds if self._batches is None else self._feeds_of_next_batch()
        if not self.lifted.feeds and not self.lifted.opaque_inputs and not args and not kwargs:
            return None
        return self._feeds_of(args, kwargs)

    def _feeds_of_next_batch(self) -> dict[Any, Any] | None:
        with context.eager_mode():
            batch = next(self._batches)
        return self._feeds_of((*self._args, *as_arguments(batch)), self._kwargs)

    def feed_fn(self) -> Callable[[], Any] | None:
        """The function that returns the feeds of each step of a loop. None if nothing is fed."""
        if self._batches is not None:
            return self._feeds_of_next_batch
        feeds = self.bound_feeds()
        return None if feeds is None else lambda: feeds

    @property
    def arguments(self) -> dict[Any, Any]:
        """The feeds of the arguments that the step is bound to."""
        return self._bound_feeds or {}

    def bound_feeds(self) -> dict[Any, Any] | None:
        """The feeds of each step, if they are always the same."""
        try:
            return self.feeds()
        except TypeError as error:
            raise TypeError(
                f"{self._step.__name__} takes arguments: {str(error).rstrip('.')}. Pass fastsup.bind(step, *args) to "
                "monitored_function, or call it with the arguments of each step instead of run_loop."
            ) from error

    def _feeds_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[Any, Any] | None:
        inputs = self._inputs(args, kwargs)
        reason = why_not_held(inputs[place] for place, _ in self.lifted.opaque_inputs)
        if reason:
            raise RuntimeError(
                f"{self._step.__name__} can't be run by a session: {reason}. Let it use the variable without an "
                "argument, or pass fastsup.bind(step, *args)."
            )
        for place, box in self.lifted.opaque_inputs:
            box.box.store(inputs[place])
        values = [value.numpy() for value in inputs if value.dtype not in _OPAQUE]
        return dict(zip(self.lifted.feeds, values, strict=True)) or None

    def result(self, values: list[Any]) -> Any:
        """Puts the values of the tensors into the structure that the function returns."""
        if self.outputs is None:
            return None
        if len(values) == 1 and self._leaves[0] is self.outputs:
            return values[0]
        rest = iter(values)
        flat = [None if leaf is None else next(rest) for leaf in nest.flatten(self.outputs)]
        return nest.pack_sequence_as(self.outputs, flat)


def _specs_of(batches: Any) -> tuple[Any, ...]:
    """The `tf.TensorSpec`s of the arguments that a batch becomes."""
    if batches is None:
        return ()
    spec = getattr(batches, "element_spec", None)
    if spec is None:
        raise TypeError(
            "batches must be a fastsup.ArrayBatches or a tf.data.Dataset, whose element_spec says what a batch is; got "
            f"{batches!r}."
        )
    return as_arguments(spec)


def _parts_of(step: Any) -> tuple[Function, tuple[Any, ...], dict[str, Any]]:
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    if isinstance(step, BoundStep | BatchStep):
        step, args, kwargs = step.step, step.args, step.kwargs
    step, instance = without_instance(step)
    if not callable(step):
        raise TypeError(f"step must be a function, got {step!r} of type {type(step).__name__}.")
    return function(step), (*instance, *args), kwargs


def _variable_of(global_step: Any) -> Any:
    if global_step is None:
        with context.eager_mode():
            return variables.Variable(0, dtype=dtypes.int64, trainable=False, name="global_step")
    # A variable of Keras holds one of TensorFlow.
    is_of_tensorflow = isinstance(global_step, resource_variable_ops.BaseResourceVariable)
    variable = global_step if is_of_tensorflow else getattr(global_step, "value", None)
    if not isinstance(variable, resource_variable_ops.BaseResourceVariable):
        raise ValueError(f"global_step must be a tf.Variable or a keras.Variable, got {global_step!r}.")
    if not variable.dtype.is_integer or variable.shape.rank != 0:
        raise ValueError(f"global_step must be one integer, got a variable {variable!r}.")
    return variable


def _in_graph(variable: Any) -> Any:
    """An eager variable as a variable of the default graph."""
    found = variable_handle(variable.handle)
    if found is None:
        raise ValueError(f"global_step has a handle that is unknown: {variable.handle!r}.")
    handle = found.in_graph("global_step")
    # The initializer isn't run: it is there because the description of a graph names it.
    initial_value = constant_op.constant(0, variable.dtype)
    return resource_variable_ops.BaseResourceVariable(
        trainable=False,
        shape=variable.shape,
        dtype=variable.dtype,
        handle=handle,
        handle_name="global_step",
        unique_id=found.shared_name,
        graph_element=gen.read_variable_op(handle, variable.dtype),
        initial_value=initial_value,
        initializer_op=gen.assign_variable_op(handle, initial_value),
        is_initialized_op=gen.var_is_initialized_op(handle),
        in_graph_mode=True,
    )
