"""Errors of the single-threaded executor, which doesn't say which operation has failed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from fastsup.runtime.executor import operations_behind

_PLACEHOLDER = re.compile(r"placeholder tensor '([^']+)'")
_HINT = (
    '\n(Which operation it was, the single-threaded executor doesn\'t say: executor="inline" or "thread_pool" does.)'
)

# What it says of a graph that it can't run at all.
_REFUSED = "Single-threaded executor does not support"
_REMEDY = '\n(executor="single_threaded" can\'t run this graph: executor="auto" takes one that can.)'


def with_operation(error: Any, elements: Iterable[Any]) -> Any:
    """The error with the name of the operation in its message, as TensorFlow's other executors have it.

    Args:
      error: a `tf.errors.OpError`.
      elements: what the failed run was to compute.
    """
    if error.message.startswith(_REFUSED):
        return type(error)(error.node_def, error.op, error.message + _REMEDY)
    if "{{node " in error.message:
        return error
    name = _failed_operation(error.message, elements)
    suffix = _HINT if name is None else f"\n\t [[{{{{node {name}}}}}]]"
    return type(error)(error.node_def, error.op, error.message + suffix)


def _failed_operation(message: str, elements: Iterable[Any]) -> str | None:
    """The one operation that can have said this, if it can be told."""
    placeholder = _PLACEHOLDER.search(message)
    if placeholder:
        return placeholder.group(1)
    if message.startswith("End of sequence"):
        iterators = [op for op in operations_behind(elements) if op.type == "IteratorGetNext"]
        if len(iterators) == 1:
            return str(iterators[0].name)
    return None
