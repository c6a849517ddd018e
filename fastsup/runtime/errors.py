"""Errors of the single-threaded executor, which doesn't say which operation has failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastsup.runtime.failed_operation import Evaluate, find_failed

_HINT = (
    '\n(The single-threaded executor doesn\'t say which operation it was{}. executor="inline" or "thread_pool" does.)'
)
_MOST_NAMES = 8

# What it says of a graph that it can't run at all.
_REFUSED = "Single-threaded executor does not support"
_REMEDY = '\n(executor="single_threaded" can\'t run this graph: executor="auto" takes one that can.)'


def with_operation(error: Any, elements: Sequence[Any], feeds: Mapping[Any, Any], evaluate: Evaluate) -> Any:
    """The error with the name of the operation in its message, as TensorFlow's other executors have it.

    Args:
      error: a `tf.errors.OpError`.
      elements: what the failed run was to compute.
      feeds: the tensors that it was fed, each with its array.
      evaluate: runs operations of the session again, as `find_failed` wants it.
    """
    if error.message.startswith(_REFUSED):
        return with_remedy(error)
    if "{{node " in error.message:
        return error
    found = find_failed(error, elements, feeds, evaluate)
    if not found.searched:
        return error
    if len(found.names) == 1:
        suffix = f"\n\t [[{{{{node {found.names[0]}}}}}]]"
    else:
        some = 0 < len(found.names) <= _MOST_NAMES
        suffix = _HINT.format(": one of " + ", ".join(found.names) if some else "")
    return type(error)(error.node_def, error.op, error.message + suffix)


def with_remedy(error: Any) -> Any:
    """The error of a graph that the executor can't run, with the remedy."""
    if not error.message.startswith(_REFUSED) or error.message.endswith(_REMEDY):
        return error
    return type(error)(error.node_def, error.op, error.message + _REMEDY)
