"""TensorFlow's side of a call: its traces, its rules of which ConcreteFunction a call gets, the tensors it makes."""

from __future__ import annotations

import threading
from typing import Any

from tensorflow.core.function import trace_type
from tensorflow.core.function.polymorphism import function_type as function_type_lib
from tensorflow.core.function.trace_type import default_types
from tensorflow.python.data.ops import dataset_ops, iterator_ops
from tensorflow.python.eager import wrap_function
from tensorflow.python.eager.polymorphic_function import concrete_function, function_type_utils, polymorphic_function
from tensorflow.python.framework import dtypes, ops, tensor
from tensorflow.python.ops import resource_variable_ops
from tensorflow.python.util import compat

__all__ = ["ConcreteTracer", "FunctionTracer", "is_identified"]

_KNOWN_BY_IDENTITY = (resource_variable_ops.BaseResourceVariable, iterator_ops.OwnedIterator, dataset_ops.DatasetV2)


def is_identified(value: Any) -> bool:
    """Whether the identity of an argument decides alone which ConcreteFunction a call gets.

    Args:
      value: the argument.

    Returns:
      True for objects that TensorFlow knows by identity, and for those that it knows by more but whose type stays.
    """
    if isinstance(value, _KNOWN_BY_IDENTITY):
        return True
    try:
        kind = trace_type.from_value(value, trace_type.InternalTracingContext())
    except TypeError:
        return False
    return isinstance(kind, default_types.Weakref)


class ConcreteTracer:
    """A ConcreteFunction: all calls are its own.

    Args:
      function: the ConcreteFunction.
    """

    def __init__(self, function: concrete_function.ConcreteFunction) -> None:
        self._function = function

    def why_untraceable(self) -> str:
        """Returns why TensorFlow can't be asked for a trace; an empty string if it can."""
        return ""

    def first_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
        """Does nothing. Returns False and None."""
        return False, None

    def concrete(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the ConcreteFunction of a call."""
        return self._function

    def inputs(self, concrete: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Returns the tensors that TensorFlow makes of a call's arguments, without captured ones.

        Args:
          concrete: the ConcreteFunction.
          args: the positional arguments.
          kwargs: the keyword arguments.

        Raises:
          TypeError: they aren't arguments of the function.
          ValueError: a value among them can't be made into a tensor.
        """
        flat = self._flat(concrete, args, kwargs)
        return [_as_tensor(value, inside) for value, inside in zip(flat, concrete.graph.inputs, strict=False)]

    def _flat(self, concrete: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The values of a call in the order of the function's inputs, as TensorFlow finds them.

        A ConcreteFunction has two signatures: that of the Python function, and one that has a tensor for each input.
        One that was made of a graph has the second alone. One of `wrap_function` takes what it was traced with.
        """
        if concrete._arg_keywords is None and isinstance(concrete, wrap_function.WrappedFunction):
            return _of_wrapped(concrete, args, kwargs)
        try:
            return _of_structure(concrete, args, kwargs)
        except TypeError:
            if concrete._arg_keywords is None:
                raise
            return _of_flat_signature(concrete, args, kwargs)


class FunctionTracer(ConcreteTracer):
    """A `tf.function`, which is traced for new kinds of arguments.

    Args:
      function: what `tf.function` gave.
    """

    def __init__(self, function: polymorphic_function.Function) -> None:
        self._function = function
        self._first = threading.RLock()

    def first_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
        """Traces a function that wasn't called before, and initialises the variables that it creates.

        TensorFlow does this in a first call, which is stopped before the function runs. Where TensorFlow can initialise
        the variables by running the function alone, the function has run.

        Args:
          args: the positional arguments.
          kwargs: the keyword arguments.

        Returns:
          Whether the function has run, and what it has returned.
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
        """Returns why TensorFlow can't be asked for a trace; an empty string if it can."""
        function = self._function
        if function._created_variables and function._no_variable_creation_config is None:
            with function._lock:  # TensorFlow holds it while it traces for the first time.
                if function._no_variable_creation_config is None:
                    return (
                        "its first trace has failed after it had made a variable, and TensorFlow doesn't trace it again"
                    )
        return ""

    def _is_traced(self) -> bool:
        return self._function._variable_creation_config is not None

    def concrete(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the ConcreteFunction of a call. May trace."""
        with polymorphic_function.OptionalXlaContext(self._function._jit_compile):
            return self._function._get_concrete_function_garbage_collected(*args, **kwargs)

    def _flat(self, concrete: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        options = self._function._variable_creation_config
        bound = function_type_utils.bind_function_inputs(args, kwargs, options.polymorphic_type, options.default_values)
        return _of_structure(concrete, bound.args, bound.kwargs)


class _Traced(BaseException):
    """Stops TensorFlow's first call of a function before the function runs."""


def _as_tensor(value: Any, inside: Any) -> Any:
    if isinstance(value, ops.EagerTensor):
        return value
    if isinstance(value, resource_variable_ops.BaseResourceVariable) and inside.dtype == dtypes.resource:
        return value.handle
    return ops.convert_to_tensor(value, inside.dtype)


def _of_structure(concrete: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    bound = function_type_utils.canonicalize_function_inputs(args, kwargs, concrete.function_type)
    return list(concrete.function_type.unpack_inputs(bound))


def _of_flat_signature(concrete: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    names = [function_type_lib.sanitize_arg_name(compat.as_str(name)) for name in concrete._arg_keywords]
    given = dict(zip(names, args, strict=False))
    named = {function_type_lib.sanitize_arg_name(name): value for name, value in kwargs.items()}
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
