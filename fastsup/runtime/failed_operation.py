"""Finds the operation that a step has failed in, where the executor doesn't say it.

No operation with an effect is run a second time. Operations that only compute and read are evaluated again: the first
one that fails with the same text is the one. What lies behind an operation with an effect (an iterator, a random
number) can't be had again, nor can the value of a variable that the step has changed since. There, an operation is a
suspect if it says the same of values like those in the text.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from tensorflow.python.framework import dtypes, errors, ops

from fastsup.runtime.graph.effects import is_pure
from fastsup.runtime.graph.operations import FUNCTION_CALLS, operations_behind

# Runs operations with feeds and drops their results. Returns the text of the error, or None.
Evaluate = Callable[[Sequence[ops.Operation], Mapping[Any, Any]], "str | None"]

# What only some operations say. They have effects, or take long, and aren't run again.
_SAID_BY = (
    (r"End of sequence|GetNext\(\) failed because", ("IteratorGetNext",)),
    (r"not found in checkpoint|TensorSliceReader|in checkpoint file|matching files for|\.index|\.data-\d+-of",
     ("RestoreV2", "Restore", "RestoreSlice", "SaveV2", "MergeV2Checkpoints")),
    (r"Queue '.*' (is|has|was)", ("QueueDequeue", "QueueEnqueue", "FIFOQueue", "RandomShuffleQueue")),
    (r"^assertion failed", ("Assert",)),
)  # fmt: skip
# Scopes of what tf.gradients and tf.GradientTape make.
_OF_GRADIENTS = ("gradients", "gradient_tape")
_PLACEHOLDER = re.compile(r"placeholder tensor '([^']+)'")
_SHAPE = re.compile(r"\[(\d*(?:,\s*\d+)*),?\]")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
_NO_RESOURCE = re.compile(r"(?:Could not find resource:|Resource) \w+/(.+?)(?:\)|/N\d|$)")
_INFINITE = re.compile(r"\binf\b", re.IGNORECASE)
# What an array is filled with, again and again, when an error speaks of infinities.
_INFINITIES = tuple(
    tuple(map(float, text.split())) for text in ("inf", "-inf", "inf nan", "-inf nan", "-inf inf", "-inf inf nan")
)

_MOST_SECS = 1.5
_MOST_ATTEMPTS = 5
_MOST_ELEMENTS = 1 << 20
_MOST_FILLS = 8
_OPERATIONS_ERRORS = (
    errors.InvalidArgumentError, errors.FailedPreconditionError, errors.OutOfRangeError, errors.NotFoundError,
    errors.AlreadyExistsError, errors.InternalError, errors.UnimplementedError, errors.DataLossError,
    errors.UnknownError, errors.PermissionDeniedError, errors.ResourceExhaustedError,
)  # fmt: skip


class Found(NamedTuple):
    """What a search has found.

    Args:
      names: the operations that can have failed; a single one is the one that has.
      searched: whether there was anything to search for: an operation that the error can have come from.
    """

    names: list[str]
    searched: bool


def find_failed(error: Any, elements: Sequence[Any], feeds: Mapping[Any, Any], evaluate: Evaluate) -> Found:
    """Finds the operation that an error comes from.

    Args:
      error: a `tf.errors.OpError`.
      elements: the tensors and operations that the failed run was to compute.
      feeds: the tensors that it was fed, each with its array.
      evaluate: runs operations of the session again.
    """
    if not isinstance(error, _OPERATIONS_ERRORS):
        return Found([], searched=False)
    message = error.message
    placeholder = _PLACEHOLDER.search(message)
    if placeholder:
        return Found([placeholder.group(1)], searched=True)
    operations = sorted(operations_behind(elements, feeds), key=lambda op: op._id)
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
    search = _Search(message, operations, feeds, evaluate)
    first = search.first_to_fail_again()
    return Found([first.name] if first else search.suspects(), searched=True)


class _Search:
    def __init__(
        self, message: str, operations: list[ops.Operation], feeds: Mapping[Any, Any], evaluate: Evaluate
    ) -> None:
        self._message = message
        self._feeds = feeds
        self._evaluate = evaluate
        self._until = perf_counter() + _MOST_SECS
        self._shapes = [tuple(map(int, _NUMBER.findall(text))) for text in _SHAPE.findall(message)]
        self._fills = _fills(message)
        self._pure: dict[ops.Operation, None] = {}
        # Of the pure operations, those whose inputs are sure to be what they were in the failed run.
        self._known: set[ops.Operation] = set()
        # Those with other inputs, which may have been others in the failed run.
        self._doubtful: list[ops.Operation] = []
        fed = {id(tensor) for tensor in feeds}
        effects = {op for op in operations if not is_pure(op)}
        changed = {tensor.op for op in effects for tensor in _handles(op)}
        for op in operations:
            if op in effects:
                continue
            sources = [tensor.op for tensor in op.inputs if id(tensor) not in fed] + list(op.control_inputs)
            if all(source in self._pure for source in sources):
                self._pure[op] = None
                is_read_of_changed = any(tensor.op in changed for tensor in _handles(op))
                if not is_read_of_changed and all(source in self._known for source in sources):
                    self._known.add(op)
                    continue
            self._doubtful.append(op)

    def first_to_fail_again(self) -> ops.Operation | None:
        """The first operation, in the order of their creation, that is pure and says the same again."""
        candidates = list(self._pure)
        for _ in range(_MOST_ATTEMPTS):
            if not candidates or self._evaluate(candidates, self._feeds) is None:
                return None
            passing, failing = 0, len(candidates)
            while failing - passing > 1:
                if perf_counter() > self._until:
                    return None
                middle = (passing + failing) // 2
                if self._evaluate(candidates[:middle], self._feeds) is None:
                    passing = middle
                else:
                    failing = middle
            op = candidates[failing - 1]
            if self._evaluate([op], self._feeds) == self._message:
                return op
            # It fails now, and did not fail then. What depends on it can't be evaluated.
            candidates = [other for other in candidates if op not in operations_behind([other], self._feeds)]
        return None

    def suspects(self) -> list[str]:
        """The operations with inputs that can't be had again that say the same of values like those in the text."""
        same: list[str] = []
        alike: list[str] = []
        template = _template(self._message)
        for op in self._doubtful:
            if perf_counter() > self._until:
                return []  # Some are left: a part of the suspects would mislead.
            if op.type in FUNCTION_CALLS or not op.inputs:
                continue
            if not all(source in self._pure for source in op.control_inputs):
                continue  # It can't be run without them, and what they do isn't done twice.
            is_alike = False
            for text in self._said_by(op):
                if text == self._message:
                    same.append(op.name)
                    break
                is_alike = is_alike or _template(text) == template
            else:
                if is_alike:
                    alike.append(op.name)
        names = same or alike
        # The gradient of an operation gets the same inputs. The operation itself is what the program wrote.
        written = [name for name in names if not any(part.startswith(_OF_GRADIENTS) for part in name.split("/"))]
        return written or names

    def _said_by(self, op: ops.Operation) -> Iterator[str]:
        """The errors of an operation on inputs like those that the text speaks of."""
        fed = _Tensors(self._feeds)
        unknown = [tensor for tensor in op.inputs if tensor.op not in self._known and tensor not in fed]
        if not unknown or not all(tensor.dtype.is_numpy_compatible for tensor in unknown):
            return
        if not all(tensor in fed or tensor.op in self._pure for tensor in op.inputs if tensor not in _Tensors(unknown)):
            return
        # Errors that speak of values mostly don't give shapes: then the inputs have as many rows as one of them.
        rows = {tensor.shape[0] for tensor in op.inputs if tensor.shape.rank} - {None}
        choices = [_shapes_of(tensor, self._shapes, sorted(rows)) for tensor in unknown]
        assignments = list(itertools.islice(itertools.product(*choices), 6))
        for fill, assignment in itertools.product(self._fills, assignments):
            arrays = {}
            for tensor, shape in zip(unknown, assignment, strict=True):
                array = _filled(tensor, shape, fill)
                if array is None:
                    return
                arrays[tensor] = array
            text = self._evaluate([op], {**self._feeds, **arrays})
            if text is not None:
                yield text


class _Tensors:
    """A set of tensors by identity: `==` of tensors makes a tensor."""

    def __init__(self, tensors: Any) -> None:
        self._ids = {id(tensor) for tensor in tensors}

    def __contains__(self, tensor: Any) -> bool:
        return id(tensor) in self._ids


def _template(text: str) -> str:
    """A text without what differs from one value to the next: its numbers, and how many there are in a row."""
    return re.sub(r"#(?:,?\s+#)+", "#", _NUMBER.sub("#", text))


def _fills(message: str) -> list[tuple[Any, ...]]:
    """Values to fill inputs with: those that an error speaks of, and what many errors are about."""
    outside = _NUMBER.findall(_SHAPE.sub("", message))
    inside = [number for shape in _SHAPE.findall(message) for number in _NUMBER.findall(shape)]
    numbers = [float(text) for text in [*outside, *inside]]
    fills: list[tuple[Any, ...]] = [(number,) for number in dict.fromkeys([0.0, float("nan"), *numbers])][:_MOST_FILLS]
    if _INFINITE.search(message):
        fills += _INFINITIES
    # Of texts, an error says the text itself, mostly at its end, or that there is nothing in it.
    return [*fills, ("",), (message.rpartition(": ")[2],)]


def _shapes_of(tensor: Any, shapes: list[tuple[int, ...]], rows: list[int]) -> list[tuple[int, ...]]:
    """The shapes that an input can have had: those of the text that fit, and some of so many rows or one."""
    known = tensor.shape
    if known.is_fully_defined():
        return [tuple(known.as_list())]
    fitting = [shape for shape in shapes if known.is_compatible_with(shape)]
    if known.rank is None:
        return list(dict.fromkeys([*fitting, ()]))
    sizes = known.as_list()
    return list(dict.fromkeys([*fitting, *(tuple(size or number for size in sizes) for number in (1, *rows, 3))]))


def _filled(tensor: Any, shape: tuple[int, ...], fill: tuple[Any, ...]) -> Any:
    """An array of the values of a fill, again and again. None if it were too large, or the type has no such values."""
    if np.prod(shape, dtype=np.float64) > _MOST_ELEMENTS:
        return None
    dtype = tensor.dtype.as_numpy_dtype
    if dtype is object or dtype is str:
        return np.resize(np.array([str(value) for value in fill], object), shape)
    if any(isinstance(value, str) for value in fill):
        return None
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        fill = tuple(int(value) if limits.min <= value <= limits.max else 0 for value in fill)
    return np.resize(np.array(fill), shape).astype(dtype)


def _handles(op: ops.Operation) -> list[Any]:
    return [tensor for tensor in op.inputs if tensor.dtype == dtypes.resource]


def _resources(op: ops.Operation) -> list[str]:
    """The names of the variables that an operation is given."""
    return [
        tensor.op.get_attr("shared_name").decode() or tensor.op.name
        for tensor in _handles(op)
        if tensor.op.type == "VarHandleOp"
    ]
