"""Records TensorFlow's traces: each function that is converted to a graph, and the reason for each retrace."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from fastsup.profile.recording.phases import INPUT_TRACES, KERAS_STEPS, MADE_AGAIN, TRACING
from fastsup.profile.recording.watch.probes import timed
from fastsup.profile.recording.watch.replacements import Replacement

__all__ = ["Traces", "difference", "leaves", "replacements", "signature_text", "value_text"]

_MOST_CHARACTERS = 60
_MOST_OF_A_VALUE = 24


def value_text(value: Any) -> str:
    """Formats an argument: a tensor as `float32[8,4]`, structures with their parts, other values as in Python."""
    element = getattr(value, "element_spec", None)
    if element is not None:
        return f"iterator of {value_text(element)}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {value_text(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        begin, end = "[]" if isinstance(value, list) else "()"
        return begin + ", ".join(map(value_text, value)) + end
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if dtype is not None and shape is not None:
        name = getattr(dtype, "name", str(dtype))
        if getattr(shape, "rank", 0) is None:
            return f"{name}[...]"
        return f"{name}[{','.join('?' if size is None else str(size) for size in shape)}]"
    text = repr(value)
    return text if len(text) <= _MOST_OF_A_VALUE else f"{text[: _MOST_OF_A_VALUE - 1]}…"


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"


def signature_text(concrete: Any) -> str:
    """Formats the arguments of a ConcreteFunction as a short text: `float32[8,4], 1`."""
    args, kwargs = concrete.structured_input_signature
    parts = [value_text(value) for value in args]
    parts += [f"{name}={value_text(value)}" for name, value in kwargs.items()]
    return _cut(", ".join(parts)) or "no arguments"


def leaves(names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, str]:
    """Returns the parts of a trace's arguments by position: `{"x[0]": "float32[8,4]"}`."""
    found: dict[str, str] = {}
    for number, value in enumerate(args):
        found.update(_parts(names[number] if number < len(names) else f"argument {number}", value))
    for name, value in kwargs.items():
        found.update(_parts(name, value))
    return found


def _parts(place: str, value: Any) -> Iterator[tuple[str, str]]:
    value = getattr(value, "element_spec", value)
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _parts(f"{place}[{key!r}]", part)
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield from _parts(f"{place}[{number}]", part)
    else:
        yield place, value_text(value)


def difference(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Describes the first difference of two signatures, such as `x[0] is float32[8,4], was float32[5,4]`, or ""."""
    if list(before) != list(now):
        return "other arguments"
    for place, text in now.items():
        if before[place] != text:
            return _cut(f"{place} is {text}, was {before[place]}")
    return ""


_MOST_FUNCTIONS = 64
_MOST_SIGNATURES = 8
_MOST_DETAILS = 32
# Keras's names for its functions for a batch.
_OF_KERAS = ("one_step", "multi_step", "train_function", "test_function", "predict_function")
# tf.data's names for the functions of a dataset.
_OF_INPUT = "Dataset_"


class Traces:
    """The traces so far, from which a new one is distinguished."""

    def __init__(self) -> None:
        # For each label: a weak reference to the Python function, and the leaves of its last signatures.
        self._known: dict[str, tuple[Any, list[dict[str, str]]]] = {}
        self._details: set[str] = set()

    def detail(
        self,
        within: str,
        name: str,
        function: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *_: Any,
        **named: Any,
    ) -> str:
        """Describes a trace: the function, and how the trace differs from earlier ones."""
        if str(name).startswith(_OF_INPUT):
            return INPUT_TRACES
        # Keras's functions have names without meaning to the user.
        is_of_keras = within in KERAS_STEPS and str(name).startswith(_OF_KERAS)
        signature = leaves(named.get("arg_names") or (), args, kwargs)
        return self._limited(self._described(within if is_of_keras else str(name), inspect.unwrap(function), signature))

    def _limited(self, detail: str) -> str:
        if detail not in self._details and len(self._details) >= _MOST_DETAILS:
            return "of other functions"
        self._details.add(detail)
        return detail

    def _described(self, label: str, function: Any, signature: dict[str, str]) -> str:
        reference, signatures = self._known.get(label, (None, []))
        if reference is None:
            if len(self._known) < _MOST_FUNCTIONS:
                self._known[label] = (_reference(function), [signature])
            return label
        if reference() is not function:
            self._known[label] = (_reference(function), [signature])
            return f"{label}: {MADE_AGAIN}"
        # Choose the last one of the signatures that differ least.
        closest = min(
            reversed(signatures), key=lambda other: sum(other.get(place) != text for place, text in signature.items())
        )
        signatures.append(signature)
        del signatures[:-_MOST_SIGNATURES]
        what = difference(closest, signature)
        # In its first call, TensorFlow traces a function that creates variables twice.
        return f"{label}: {what}" if what else label


def _reference(function: Any) -> Any:
    try:
        return weakref.ref(function)
    except TypeError:  # A callable need not support weak references.
        return functools.partial(lambda held: held, function)


def replacements(func_graph: ModuleType) -> Iterator[Replacement]:
    """Yields the replacements of TensorFlow functions while a profiler is on."""
    detail = Traces().detail
    yield func_graph, "func_graph_from_py_func", functools.partial(timed, phase=TRACING, detail_of=detail)
