"""Errors of lifted functions: with the words and the lines of the program that TensorFlow's own call gives them."""

from __future__ import annotations

import re
from typing import Any

from tensorflow.python.eager.polymorphic_function import atomic_function
from tensorflow.python.util import compat

from fastsup.runtime.graph.operations import PLAIN_CALLS

__all__ = ["with_lines"]

# An operation of which the runtime doesn't say in which function it was.
_NODE = re.compile(r"(?<!\}\})\{\{node ([^}]*)\}\}")


def with_lines(error: Any, concrete: Any) -> Any:
    """Gives the error of a lifted graph the text that TensorFlow's call of the function gives it.

    Args:
      error: a `tf.errors.OpError`.
      concrete: the ConcreteFunction.

    Returns:
      The error.
    """
    function = concrete.inference_fn
    name = compat.as_str(function.name)

    def with_functions(found: re.Match[str]) -> str:
        functions, node = _path(concrete.graph, found[1])
        return "".join(f"{{{{function_node {inside}}}}}" for inside in functions) + f"{{{{node {node}}}}}"

    message = _NODE.sub(with_functions, error.message)
    error._message = f"{{{{function_node {name}}}}} {message} [Op:{name}]"
    # This adds the lines of each operation in the text, and takes the names of functions out.
    atomic_function.InterpolateRuntimeError(function).__exit__(type(error), error, None)
    return error


def _path(graph: Any, name: str) -> tuple[list[str], str]:
    """The functions that an operation of a flattened graph was in, from the outermost one, and its name in the last."""
    functions = []
    parts = name.split("/")
    start = 0
    for end in range(1, len(parts)):
        call = _operation(graph, "/".join(parts[start:end]))
        if call is None or call.type not in PLAIN_CALLS:
            continue
        function = compat.as_str(call.get_attr("f").name)
        functions.append(function)
        graph, start = graph._get_function(function).graph, end
    return functions, "/".join(parts[start:])


def _operation(graph: Any, name: str) -> Any:
    try:
        return graph.get_operation_by_name(name)
    except (KeyError, ValueError):
        return None
