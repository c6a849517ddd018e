"""TensorFlow's part of a call: its traces, the choice of a ConcreteFunction, and the conversion to tensors."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tensorflow.core.function.polymorphism import function_type as function_types
from tensorflow.core.function.trace_type import custom_nest_trace_type, default_types
from tensorflow.python.eager import wrap_function
from tensorflow.python.eager.polymorphic_function import concrete_function, function_type_utils, polymorphic_function
from tensorflow.python.framework import dtypes, ops, tensor, tensor_shape, type_spec
from tensorflow.python.ops import resource_variable_ops
from tensorflow.python.util import compat

from fastsup.eager.calls import CallCount, call_count
from fastsup.runtime.own_frames import OwnFrames

__all__ = ["ArgumentType", "CallTypes", "ConcreteTracer", "FunctionTracer"]

_OPAQUE = (dtypes.resource, dtypes.variant)
# Maximum number of other traces that may accept calls of one trace. They are compared in each call.
_MOST_RIVALS = 8


@dataclass(frozen=True)
class ArgumentType:
    """One argument of a trace.

    Args:
      kind: its TraceType in TensorFlow.
      feed: the position of its first tensor among the feeds.
      is_cast: Whether a signature makes TensorFlow convert other values to tensors.
    """

    kind: Any
    feed: int
    is_cast: bool


@dataclass
class CallTypes:
    """A trace's arguments in a call.

    Args:
      positional: one for each positional argument.
      keywords: one for each keyword argument, by name.
      defaults: pairs of an omitted parameter's value and its type.
      feeds: number of fed tensors.
      rivals: the arguments of other traces, which TensorFlow prefers in calls that they accept. None if they are
        unknown or too many. The types then apply only to calls with the same shapes.
    """

    positional: list[ArgumentType]
    keywords: dict[str, ArgumentType]
    defaults: list[tuple[Any, ArgumentType]]
    feeds: int
    rivals: list[CallTypes] | None = field(default_factory=list)


class ConcreteTracer:
    """A ConcreteFunction, which accepts all its calls.

    Args:
      function: the ConcreteFunction.

    Attributes:
      calls: counts the calls that don't trace.
    """

    def __init__(self, function: concrete_function.ConcreteFunction) -> None:
        self._function = function
        self.calls: CallCount = CallCount(None)

    def why_untraceable(self) -> str:
        """Returns the reason why TensorFlow can't provide a trace, or "" if it can."""
        return ""

    def trace(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any, Any, bool]:
        """Finds the ConcreteFunction of a call. May trace.

        Args:
          args: the positional arguments.
          kwargs: the keyword arguments.

        Returns:
          True if the function has run, and its result; the ConcreteFunction, and True if this call traced it.
        """
        return False, None, self._function, False

    def told(self, is_new: bool) -> None:
        """Counts a successful call, for TensorFlow's warning about retracing.

        Args:
          is_new: Whether the call traced.
        """

    def inputs(self, concrete: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Returns the tensors that TensorFlow creates from a call's arguments, without captured ones.

        Args:
          concrete: the ConcreteFunction.
          args: the positional arguments.
          kwargs: the keyword arguments.

        Raises:
          TypeError: If `args` and `kwargs` aren't arguments of the function.
          ValueError: If a value among them can't be converted to a tensor.
        """
        flat = self._flat(concrete, args, kwargs)
        return [_as_tensor(value, inside) for value, inside in zip(flat, concrete.graph.inputs, strict=False)]

    def _flat(self, concrete: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Returns the values of a call in the order of the function's inputs, as TensorFlow finds them.

        A ConcreteFunction has two signatures: the Python function's, and one with a tensor for each input. One created
        from a graph has only the second. One from `wrap_function` takes the arguments of its trace.
        """
        if _is_wrapped(concrete):
            return _of_wrapped(concrete, args, kwargs)
        try:
            return _of_structure(concrete, args, kwargs)
        except TypeError:
            if concrete._arg_keywords is None:
                raise
            return _of_flat_signature(concrete, args, kwargs)

    def types(self, concrete: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallTypes:
        """Returns the arguments of a call's trace.

        Args:
          concrete: the ConcreteFunction.
          args: the positional arguments.
          kwargs: the keyword arguments.

        Raises:
          TypeError: If the arguments don't have the structure with which the function was traced.
        """
        is_wrapped = _is_wrapped(concrete)
        if not is_wrapped:
            try:
                found = self._types(concrete.function_type, args, kwargs)
            except (TypeError, KeyError):
                if concrete._arg_keywords is None:
                    raise
            else:
                rivals = self._rivals(concrete)
                found.rivals = None if rivals is None else [self._types(rival, args, kwargs) for rival in rivals]
                return found
        return _types_of_inputs(concrete, args, kwargs)

    def _types(self, traced: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallTypes:
        signature, default_values = self._signature(traced)
        names = {function_types.sanitize_arg_name(name): name for name in kwargs}
        bound = signature.bind(*range(len(args)), **names).arguments
        kinds = _kinds(traced)
        positional: dict[int, ArgumentType] = {}
        keywords: dict[str, ArgumentType] = {}
        defaults = []

        def take(name: str, given: Any) -> None:
            (positional if isinstance(given, int) else keywords)[given] = ArgumentType(*kinds[name], is_cast)

        for name, parameter in signature.parameters.items():
            is_cast = parameter.type_constraint is not None
            if parameter.kind is parameter.VAR_POSITIONAL:
                for number, given in enumerate(bound.get(name, ())):
                    take(f"{name}_{number}", given)
            elif parameter.kind is parameter.VAR_KEYWORD:
                for key, given in bound.get(name, {}).items():
                    take(key, given)
            elif name in bound:
                take(name, bound[name])
            elif name in default_values:
                defaults.append((default_values[name], ArgumentType(*kinds[name], is_cast)))
            else:
                raise TypeError(f"{name} has no value.")
        feeds = sum(_is_fed(leaf) for leaf in traced.flat_inputs)
        return CallTypes([positional[place] for place in range(len(args))], keywords, defaults, feeds)

    def _signature(self, traced: Any) -> tuple[Any, dict[str, Any]]:
        """Returns the FunctionType that binds calls, and the default values of its parameters."""
        return traced, {}

    def _rivals(self, concrete: Any) -> list[Any] | None:
        """Returns the FunctionTypes of the other traces that may accept calls to a trace."""
        return []


class FunctionTracer(ConcreteTracer):
    """A `tf.function`, which is traced for new kinds of arguments.

    Args:
      function: the result of `tf.function`.
    """

    def __init__(self, function: polymorphic_function.Function) -> None:
        self._function = function
        self.calls = call_count(function._key_for_call_stats)
        self._first = threading.RLock()
        self._skeletons: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def trace(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any, Any, bool]:
        """Finds the ConcreteFunction of a call. May trace, the first time like TensorFlow's first call."""
        function = self._function
        traces = function.experimental_get_tracing_count()
        with OwnFrames():
            has_run, result = self._first_call(args, kwargs)
            if has_run:
                return True, result, None, True
            concrete = self.concrete(args, kwargs)
        return False, None, concrete, function.experimental_get_tracing_count() != traces

    def concrete(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns TensorFlow's ConcreteFunction of a call. May trace."""
        with polymorphic_function.OptionalXlaContext(self._function._jit_compile):
            return self._function._get_concrete_function_garbage_collected(*args, **kwargs)

    def told(self, is_new: bool) -> None:
        """Counts a successful call, for TensorFlow's warning about retracing."""
        if is_new:
            self.calls.tell()
            function = self._function
            polymorphic_function._frequent_tracing_detector_manager.called_with_tracing(
                function._key_for_call_stats, function._python_function, function._omit_frequent_tracing_warning
            )
        else:
            self.calls.add()

    def _first_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
        """Traces a function that wasn't called before, and initializes the variables that it creates.

        TensorFlow does this in a first call, which is stopped before the function runs. If TensorFlow can only
        initialize the variables by running the function, the function has run.

        Args:
          args: the positional arguments.
          kwargs: the keyword arguments.

        Returns:
          True if the function has run, and its result.
        """
        if self._is_traced():
            return False, None
        with self._first:
            if self._is_traced():
                return False, None
            function = self._function
            thread = threading.get_ident()
            initialize, initialize_variables = function._initialize, function._initialize_uninitialized_variables

            def trace(*arguments: Any, **keywords: Any) -> None:
                initialize(*arguments, **keywords)
                if not function._created_variables and threading.get_ident() == thread:
                    raise _Traced

            def set_variables(*arguments: Any, **keywords: Any) -> None:
                initialize_variables(*arguments, **keywords)
                if threading.get_ident() == thread:
                    raise _Traced

            function._initialize, function._initialize_uninitialized_variables = trace, set_variables
            try:
                return True, function(*args, **kwargs)
            except _Traced:
                return False, None
            finally:
                del function._initialize, function._initialize_uninitialized_variables

    def why_untraceable(self) -> str:
        """Returns the reason why TensorFlow can't provide a trace, or "" if it can."""
        function = self._function
        if function._created_variables and function._no_variable_creation_config is None:
            with function._lock:  # TensorFlow holds this lock while it traces for the first time.
                if function._no_variable_creation_config is None:
                    return "its first trace failed after creating a variable, and TensorFlow doesn't retrace it"
        return ""

    def _is_traced(self) -> bool:
        return self._function._variable_creation_config is not None

    def _flat(self, concrete: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        options = self._function._variable_creation_config
        bound = function_type_utils.bind_function_inputs(args, kwargs, options.polymorphic_type, options.default_values)
        return _of_structure(concrete, bound.args, bound.kwargs)

    def _signature(self, traced: Any) -> tuple[Any, dict[str, Any]]:
        options = self._function._variable_creation_config
        return options.polymorphic_type, options.default_values

    def _rivals(self, concrete: Any) -> list[Any] | None:
        """Returns earlier traces with the same structure of arguments that have shapes in common with this trace.

        TensorFlow uses the narrowest trace that fits, or the first one if none is narrowest. A later trace is created
        only for calls that no trace matches, so it takes no calls from this one.
        """
        cache = self._function._variable_creation_config.function_cache
        with self._function._lock:  # TensorFlow holds this lock while it adds a trace.
            traces = [(key[0], trace) for key, trace in cache._primary.items()]
        place = next((place for place, (_, trace) in enumerate(traces) if trace is concrete), None)
        if place is None:
            return None
        scope, skeleton = traces[place][0], self._skeleton(concrete)
        shapes = [leaf.shape for leaf in concrete.function_type.flat_inputs]
        rivals = []
        for other_scope, other in traces[:place]:
            if self._skeleton(other) == skeleton and other_scope == scope:
                others = [leaf.shape for leaf in other.function_type.flat_inputs]
                if len(others) == len(shapes) and all(map(tensor_shape.TensorShape.is_compatible_with, shapes, others)):
                    rivals.append(other.function_type)
        return rivals if len(rivals) <= _MOST_RIVALS else None

    def _skeleton(self, concrete: Any) -> Any:
        """Returns a trace's types without the shapes."""
        skeleton = self._skeletons.get(concrete)
        if skeleton is None:
            parameters = concrete.function_type.parameters.values()
            skeleton = tuple([(one.name, one.kind, _without_shapes(one.type_constraint)) for one in parameters])
            self._skeletons[concrete] = skeleton
        return skeleton


class _Traced(BaseException):
    """Stops TensorFlow's first call to a function before the function runs."""


def _is_fed(leaf: Any) -> bool:
    return leaf.dtype not in _OPAQUE


def _kinds(traced: Any) -> dict[str, tuple[Any, int]]:
    """Returns the TraceType of each parameter, and the position of its first feed."""
    kinds = {}
    feed = 0

    def place(parameter: Any) -> str:
        """Returns a sort key for the order of TensorFlow's flat inputs: keyword-only ones come last, sorted by name."""
        return str(parameter.name) if parameter.kind is parameter.KEYWORD_ONLY else ""

    for parameter in sorted(traced.parameters.values(), key=place):
        kinds[parameter.name] = (parameter.type_constraint, feed)
        feed += sum(map(_is_fed, parameter.type_constraint.flatten()))
    return kinds


def _without_shapes(kind: Any) -> Any:
    """Returns a TraceType without the shapes of its tensors, to be compared."""
    if isinstance(kind, tensor.TensorSpec):
        return kind.dtype
    if isinstance(kind, type_spec.TypeSpec):
        return type(kind)
    if isinstance(kind, default_types.Dict):
        return frozenset([(key, _without_shapes(item)) for key, item in kind.mapping.items()])
    parts = tuple(map(_without_shapes, _parts(kind)))
    if isinstance(kind, default_types.NamedTuple):
        return kind.type_name, kind.attribute_names, parts
    if isinstance(kind, custom_nest_trace_type.CustomNestTraceType):
        return kind.value_type, parts
    return (type(kind), parts) if parts else kind


def _parts(kind: Any) -> Iterator[Any]:
    """Yields the TraceTypes of the parts of a TraceType."""
    if isinstance(kind, default_types.List):
        kind = kind.components_tuple
    elif isinstance(kind, default_types.NamedTuple):
        kind = kind.attributes
    elif isinstance(kind, default_types.Attrs):
        return iter([kind.named_attributes])
    return iter(getattr(kind, "components", ()))


def _as_tensor(value: Any, inside: Any) -> Any:
    if isinstance(value, ops.EagerTensor):
        return value
    if isinstance(value, resource_variable_ops.BaseResourceVariable) and inside.dtype == dtypes.resource:
        return value.handle
    return ops.convert_to_tensor(value, inside.dtype)


def _of_structure(concrete: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    bound = function_type_utils.canonicalize_function_inputs(args, kwargs, concrete.function_type)
    return list(concrete.function_type.unpack_inputs(bound))


def _is_wrapped(concrete: Any) -> bool:
    """Returns True for a function from `wrap_function`, which accepts only its inputs."""
    return concrete._arg_keywords is None and isinstance(concrete, wrap_function.WrappedFunction)


def _types_of_inputs(concrete: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallTypes:
    """Returns a ConcreteFunction's arguments in a call that passes a tensor for each input."""
    inputs = concrete.graph.inputs[: len(concrete.graph.inputs) - len(concrete.graph.captures)]
    names = [function_types.sanitize_arg_name(compat.as_str(name)) for name in concrete._arg_keywords or ()]
    signature = getattr(concrete, "_signature", None) or [None] * len(inputs)
    kinds = []
    for feed, (inside, spec) in enumerate(zip(inputs, signature, strict=True)):
        if inside.dtype in _OPAQUE:
            raise TypeError(f"{inside} isn't fed.")
        is_cast = isinstance(spec, tensor.DenseSpec)
        kinds.append(ArgumentType(tensor.TensorSpec(inside.shape, inside.dtype), feed, is_cast))
    named = {key: kinds[names.index(function_types.sanitize_arg_name(key))] for key in kwargs}
    return CallTypes(kinds[: len(args)], named, [], len(kinds))


def _of_flat_signature(concrete: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    names = [function_types.sanitize_arg_name(compat.as_str(name)) for name in concrete._arg_keywords]
    given = dict(zip(names, args, strict=False))
    named = {function_types.sanitize_arg_name(name): value for name, value in kwargs.items()}
    if len(args) > concrete._num_positional_args or given.keys() & named.keys() or {*given, *named} != set(names):
        raise TypeError(f"the inputs are {', '.join(names)}, {concrete._num_positional_args} of them by position.")
    given.update(named)
    values = [given[name] for name in names]
    for name, value in zip(names, values, strict=True):
        if not isinstance(value, tensor.Tensor | resource_variable_ops.BaseResourceVariable):
            raise TypeError(f"{name} must be a tensor, got {value!r}.")
    return values


def _of_wrapped(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    count = len(function.graph.inputs) - len(function.graph.captures)
    if kwargs or len(args) != count:
        raise TypeError(f"it takes {count} tensors by position.")
    signature = function._signature or [None] * count
    return [
        ops.convert_to_tensor(value, spec.dtype) if isinstance(spec, tensor.DenseSpec) else value
        for value, spec in zip(args, signature, strict=True)
    ]
