"""Errors of lifted functions: with the words and the lines of the program that TensorFlow's own call gives them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from tensorflow.python.eager.polymorphic_function import atomic_function
from tensorflow.python.util import compat, tf_stack

from fastsup.runtime.graph.operations import PLAIN_CALLS

__all__ = ["OwnFrames", "with_lines"]

_PACKAGE = str(Path(__file__).parent.parent) + "/"
# An operation of which the runtime doesn't say in which function it was.
_NODE = re.compile(r"(?<!\}\})\{\{node ([^}]*)\}\}")


class OwnFrames(tf_stack.StackTraceFilter):  # type: ignore[misc]
    """A `with` block in which operations are made without those lines of fastsup that are on the stack now."""

    def __init__(self) -> None:
        super().__init__()
        self._names: set[str] = set()
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename.startswith(_PACKAGE):
                self._names.add(frame.f_code.co_filename)
            frame = frame.f_back

    def get_filtered_filenames(self) -> Any:
        """Returns the names of the files whose lines TensorFlow leaves out."""
        return self._names | self.parent.get_filtered_filenames()


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
