"""Signatures of traces as short texts, and how two of them differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["difference", "leaves", "signature_text", "value_text"]

_MOST_CHARACTERS = 60
_MOST_OF_A_VALUE = 24


def value_text(value: Any) -> str:
    """An argument as text: a tensor as `float32[8,4]`, structures with their parts, other values as Python writes them.

    Args:
      value: the argument, a tensor, or its `tf.TensorSpec`.
    """
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
    """The arguments of a ConcreteFunction as a short text: `float32[8,4], 1`.

    Args:
      concrete: the ConcreteFunction.
    """
    args, kwargs = concrete.structured_input_signature
    parts = [value_text(value) for value in args]
    parts += [f"{name}={value_text(value)}" for name, value in kwargs.items()]
    return _cut(", ".join(parts)) or "no arguments"


def leaves(names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, str]:
    """The parts of the arguments of a trace, by where they are: `{"x[0]": "float32[8,4]"}`.

    Args:
      names: the names of the positional arguments.
      args: the positional arguments.
      kwargs: the keyword arguments.
    """
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
    """The first part in which two signatures differ: `x[0] is float32[8,4], was float32[5,4]`; "" if none does.

    Args:
      before: the `leaves` of the earlier one.
      now: those of the later one.
    """
    if list(before) != list(now):
        return "other arguments"
    for place, text in now.items():
        if before[place] != text:
            return _cut(f"{place} is {text}, was {before[place]}")
    return ""
