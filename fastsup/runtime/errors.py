"""Finds the failed operation for errors of the single-threaded executor, which doesn't name it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, NamedTuple

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.framework import dtypes, errors, ops

from fastsup.common.errors import is_user_error
from fastsup.runtime.graph.effects import is_pure
from fastsup.runtime.graph.operations import outlive_callables, upstream_operations

_HINT = (
    '\n(The single-threaded executor doesn\'t name the operation{}. To see it, run again with executor="inline", an '
    "argument of sessions and of RunConfig.)"
)
_MOST_NAMES = 8
# Maximum seconds that a session spends on finding the operations of its errors.
_MOST_SEARCH_SECS = 10.0

# The single-threaded executor's message for a graph that it can't run at all.
_REFUSED = "Single-threaded executor does not support"
_REMEDY = '\n(executor="single_threaded" can\'t run this graph: executor="auto" chooses one that can.)'


class ErrorSources:
    """Finds the operations that raised the errors of one session.

    Args:
      kept: list of callables that live as long as the session. Callables that the session's kernels refer to are
        appended to this list.
    """

    def __init__(self, kept: list[Any]) -> None:
        self._kept = kept
        self._secs = 0.0

    def named(
        self, error: Any, elements: Sequence[Any], feeds: Mapping[Any, Any], compile_: Callable[[Any], Any]
    ) -> Any:
        """Adds the operation's name to an error's message, as TensorFlow's other executors do.

        Args:
          error: a `tf.errors.OpError`.
          elements: the fetches and targets of the failed run.
          feeds: the fed tensors, each with its array.
          compile_: function that creates a callable of the session from CallableOptions.
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
                if is_user_error(failure):
                    raise
                return None  # An operation that can't run provides no information.
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
        """Returns the callable that runs operations without an effect, with feeds for these tensors."""
        options = config_pb2.CallableOptions(
            feed=[tensor.name for tensor in feeds], target=[op.name for op in operations]
        )
        function = compile_(options)
        if outlive_callables(upstream_operations(operations, feeds)):
            self._kept.append(function)
        return function


def with_remedy(error: Any) -> Any:
    """Adds the remedy to the error of a graph that the executor can't run."""
    if not error.message.startswith(_REFUSED) or error.message.endswith(_REMEDY):
        return error
    return type(error)(error.node_def, error.op, error.message + _REMEDY)


# No operation with an effect runs a second time. Operations that only compute and read are evaluated again, in creation
# order. The first one that fails with the same text is the source of the error. Values computed from an operation with
# an effect (an iterator, a random number) can't be evaluated again, and neither can reads of a variable that the step
# has changed.

# Runs operations with feeds and discards their results. Returns the text of the error, or None.
Evaluate = Callable[[Sequence[ops.Operation], Mapping[Any, Any]], "str | None"]

# Messages that only specific operations raise. These have effects or take long, and aren't run again.
_SAID_BY = (
    (r"End of sequence|GetNext\(\) failed because", ("IteratorGetNext",)),
    (r"not found in checkpoint|TensorSliceReader|in checkpoint file|matching files for|\.index|\.data-\d+-of",
     ("RestoreV2", "Restore", "RestoreSlice", "SaveV2", "MergeV2Checkpoints")),
    (r"Queue '.*' (is|has|was)", ("QueueDequeue", "QueueEnqueue", "FIFOQueue", "RandomShuffleQueue")),
    (r"^assertion failed", ("Assert",)),
)  # fmt: skip
_PLACEHOLDER = re.compile(r"placeholder tensor '([^']+)'")
_NO_RESOURCE = re.compile(r"(?:Could not find resource:|Resource) \w+/(.+?)(?:\)|/N\d|$)")
_MOST_SECS = 1.5
_MOST_ATTEMPTS = 5
_OPERATIONS_ERRORS = (
    errors.InvalidArgumentError, errors.FailedPreconditionError, errors.OutOfRangeError, errors.NotFoundError,
    errors.AlreadyExistsError, errors.InternalError, errors.UnimplementedError, errors.DataLossError,
    errors.UnknownError, errors.PermissionDeniedError, errors.ResourceExhaustedError,
)  # fmt: skip


class Found(NamedTuple):
    """The result of a search.

    Args:
      names: the operations that may have failed. If there is only one, it failed.
      searched: True if the search had a candidate: an operation that may have raised the error.
    """

    names: list[str]
    searched: bool


def find_failed(error: Any, elements: Sequence[Any], feeds: Mapping[Any, Any], evaluate: Evaluate) -> Found:
    """Finds the operation that raised an error.

    Args:
      error: a `tf.errors.OpError`.
      elements: the tensors and operations that the failed run should compute.
      feeds: the fed tensors, each with its array.
      evaluate: function that runs operations of the session again.
    """
    if not isinstance(error, _OPERATIONS_ERRORS):
        return Found([], searched=False)
    message = error.message
    placeholder = _PLACEHOLDER.search(message)
    if placeholder:
        return Found([placeholder.group(1)], searched=True)
    operations = sorted(upstream_operations(elements, feeds), key=lambda op: op._id)
    for pattern, kinds in _SAID_BY:
        if re.search(pattern, message):
            names = [op.name for op in operations if op.type.startswith(kinds)]
            if len(names) == 1 or kinds[0] != "Assert":
                return Found(names, searched=bool(names))
    missing = _NO_RESOURCE.search(message)
    if missing:
        names = [op.name for op in operations if missing.group(1) in _resources(op)]
        if len(names) == 1:
            return Found(names, searched=True)
    if isinstance(error, errors.ResourceExhaustedError):
        return Found([], searched=True)
    first = _first_to_fail_again(message, _pure(operations, feeds), feeds, evaluate)
    return Found([first.name] if first else [], searched=True)


def _pure(operations: list[ops.Operation], feeds: Mapping[Any, Any]) -> list[ops.Operation]:
    """Returns the operations that only compute and read, from fed values and from results of such operations."""
    fed = {id(tensor) for tensor in feeds}
    pure: dict[ops.Operation, None] = {}
    for op in operations:
        sources = [tensor.op for tensor in op.inputs if id(tensor) not in fed] + list(op.control_inputs)
        if is_pure(op) and all(source in pure for source in sources):
            pure[op] = None
    return list(pure)


def _first_to_fail_again(
    message: str, candidates: list[ops.Operation], feeds: Mapping[Any, Any], evaluate: Evaluate
) -> ops.Operation | None:
    """Returns the first operation, in the order of creation, that raises the same message again."""
    until = perf_counter() + _MOST_SECS
    for _ in range(_MOST_ATTEMPTS):
        if not candidates or evaluate(candidates, feeds) is None:
            return None
        passing, failing = 0, len(candidates)
        while failing - passing > 1:
            if perf_counter() > until:
                return None
            middle = (passing + failing) // 2
            if evaluate(candidates[:middle], feeds) is None:
                passing = middle
            else:
                failing = middle
        op = candidates[failing - 1]
        if evaluate([op], feeds) == message:
            return op
        # This operation fails now, but didn't fail then. Operations that depend on it can't be evaluated.
        candidates = [other for other in candidates if op not in upstream_operations([other], feeds)]
    return None


def _handles(op: ops.Operation) -> list[Any]:
    return [tensor for tensor in op.inputs if tensor.dtype == dtypes.resource]


def _resources(op: ops.Operation) -> list[str]:
    """Returns the names of an operation's input variables."""
    return [
        tensor.op.get_attr("shared_name").decode() or tensor.op.name
        for tensor in _handles(op)
        if tensor.op.type == "VarHandleOp"
    ]
