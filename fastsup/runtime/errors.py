"""Errors of the single-threaded executor, which doesn't say which operation has failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.framework import errors, ops

from fastsup.common.raised_outside import is_raised_outside
from fastsup.runtime.failed_operation import find_failed
from fastsup.runtime.graph.operations import outlive_callables, upstream_operations

_HINT = (
    '\n(The single-threaded executor doesn\'t say which operation it was{}. Run it again with executor="inline", an '
    "argument of sessions and of RunConfig: then the error says it.)"
)
_MOST_NAMES = 8
# What a session spends at most on finding the operations that its errors come from.
_MOST_SEARCH_SECS = 10.0

# What it says of a graph that it can't run at all.
_REFUSED = "Single-threaded executor does not support"
_REMEDY = '\n(executor="single_threaded" can\'t run this graph: executor="auto" takes one that can.)'


class ErrorSources:
    """Finds the operations that the errors of one session come from.

    Args:
      kept: list of callables that live as long as the session: those that kernels of the session refer to are
        appended to it.
    """

    def __init__(self, kept: list[Any]) -> None:
        self._kept = kept
        self._secs = 0.0

    def named(
        self, error: Any, elements: Sequence[Any], feeds: Mapping[Any, Any], compile_: Callable[[Any], Any]
    ) -> Any:
        """The error with the name of the operation in its message, as TensorFlow's other executors have it.

        Args:
          error: a `tf.errors.OpError`.
          elements: what the failed run was to compute.
          feeds: the tensors that it was fed, each with its array.
          compile_: makes a callable of the session from its CallableOptions.
        """
        if error.message.startswith(_REFUSED):
            return with_remedy(error)
        if "{{node " in error.message:
            return error

        def evaluate(operations: Sequence[ops.Operation], feeds: Mapping[Any, Any]) -> str | None:
            try:
                self._compiled(compile_, operations, list(feeds))(*feeds.values())
            except errors.OpError as error:
                return str(error.message)
            except Exception as failure:
                if is_raised_outside(failure):
                    raise
                return None  # What can't be run says nothing.
            return None

        started = perf_counter()
        # A session stops searching once its time budget is spent.
        is_patient = self._secs < _MOST_SEARCH_SECS
        found = find_failed(error, elements, feeds, evaluate if is_patient else lambda operations, feeds: None)
        self._secs += perf_counter() - started
        if not found.searched:
            return error
        if len(found.names) == 1:
            suffix = f"\n\t [[{{{{node {found.names[0]}}}}}]]"
        else:
            some = 0 < len(found.names) <= _MOST_NAMES
            suffix = _HINT.format(": one of " + ", ".join(found.names) if some else "")
        return type(error)(error.node_def, error.op, error.message + suffix)

    def _compiled(self, compile_: Callable[[Any], Any], operations: Sequence[ops.Operation], feeds: list[Any]) -> Any:
        """The callable that runs operations without an effect, with feeds of these tensors."""
        options = config_pb2.CallableOptions(
            feed=[tensor.name for tensor in feeds], target=[op.name for op in operations]
        )
        function = compile_(options)
        if outlive_callables(upstream_operations(operations, feeds)):
            self._kept.append(function)
        return function


def with_remedy(error: Any) -> Any:
    """The error of a graph that the executor can't run, with the remedy."""
    if not error.message.startswith(_REFUSED) or error.message.endswith(_REMEDY):
        return error
    return type(error)(error.node_def, error.op, error.message + _REMEDY)
