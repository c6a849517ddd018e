"""TensorFlow's side of a call: its traces, its rules of which ConcreteFunction a call gets, the tensors it makes."""

from __future__ import annotations

import threading
from typing import Any

from tensorflow.core.function import trace_type
from tensorflow.core.function.trace_type import default_types
from tensorflow.python.data.ops import dataset_ops, iterator_ops
from tensorflow.python.eager.polymorphic_function import concrete_function, function_type_utils, polymorphic_function
from tensorflow.python.framework import dtypes, ops
from tensorflow.python.ops import resource_variable_ops

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
    except Exception:
        return False
    return isinstance(kind, default_types.Weakref)


class ConcreteTracer:
    """A ConcreteFunction: all calls are its own.

    Args:
      function: the ConcreteFunction.
    """

    def __init__(self, function: concrete_function.ConcreteFunction) -> None:
        self._function = function

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
          TypeError: they aren't arguments of the function in the structure in which it was traced.
        """
        args, kwargs = self._with_defaults(args, kwargs)
        bound = function_type_utils.canonicalize_function_inputs(args, kwargs, concrete.function_type)
        flat = concrete.function_type.unpack_inputs(bound)
        return [_as_tensor(value, inside) for value, inside in zip(flat, concrete.graph.inputs, strict=False)]

    def _with_defaults(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return args, kwargs


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

    def _is_traced(self) -> bool:
        return self._function._variable_creation_config is not None

    def concrete(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the ConcreteFunction of a call. May trace."""
        with polymorphic_function.OptionalXlaContext(self._function._jit_compile):
            return self._function._get_concrete_function_garbage_collected(*args, **kwargs)

    def _with_defaults(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        options = self._function._variable_creation_config
        bound = function_type_utils.bind_function_inputs(args, kwargs, options.polymorphic_type, options.default_values)
        return bound.args, bound.kwargs


class _Traced(BaseException):
    """Stops TensorFlow's first call of a function before the function runs."""


def _as_tensor(value: Any, inside: Any) -> Any:
    if isinstance(value, ops.EagerTensor):
        return value
    if isinstance(value, resource_variable_ops.BaseResourceVariable) and inside.dtype == dtypes.resource:
        return value.handle
    return ops.convert_to_tensor(value, inside.dtype)
