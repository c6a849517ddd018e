"""The text form of hyperparameters, such as "rate=0.1,layers=[64,32],name=small"."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

__all__ = ["parse_values"]

_ASSIGNMENT = re.compile(
    r"(?P<name>[A-Za-z][\w.]*)(?:\[\s*(?P<index>\d+)\s*\])?\s*=\s*"
    r"(?:(?P<value>[^,\[]*)|\[(?P<values>[^\]]*)\])(?:$|,\s*)"
)
_TRUTH = {"true": True, "True": True, "false": False, "False": False}


def _refuse_value(name: str, kind: type, value: str, values: str) -> NoReturn:
    raise ValueError(f"Could not parse hparam '{name}' of type '{kind.__name__}' with value '{value}' in {values}")


def _refuse_second(name: str, values: str) -> NoReturn:
    raise ValueError(f"Multiple assignments to variable '{name}' in {values}")


def _as_bool(text: str) -> bool:
    return _TRUTH[text] if text in _TRUTH else bool(int(text))


def parse_values(values: str, type_map: Mapping[str, Any], ignore_unknown: bool = False) -> dict[str, Any]:
    """Reads hyperparameters from a text.

    Args:
      values: assignments `name=value`, `name=[value,value]` or `name[index]=value`, separated by commas. A boolean is
        `true`, `false` or an integer. A string has no comma and no bracket.
      type_map: dictionary from the names to the types of the values, or of the members of the lists.
      ignore_unknown: True to skip names that `type_map` lacks.

    Returns:
      Dictionary from the names to values, lists, or, for assignments with an index, dictionaries of the values by their
      indices: "x=5,L=[1,2],a[1]=3" is {"x": 5, "L": [1, 2], "a": {1: 3}}.

    Raises:
      ValueError: the text isn't of this form, a name is unknown or assigned twice, a value isn't of its type, or a list
        is assigned to an index.
    """
    results: dict[str, Any] = {}
    position = 0
    while position < len(values):
        found = _ASSIGNMENT.match(values, position)
        if found is None:
            raise ValueError(f"Malformed hyperparameter value: {values[position:]}")
        position = found.end()
        name, index, value, members = found.group("name", "index", "value", "values")
        if name not in type_map:
            if ignore_unknown:
                continue
            raise ValueError(f"Unknown hyperparameter type for {name}")
        kind = type_map[name]
        parse: Callable[[str], Any] = _as_bool if kind is bool else kind
        if value is None:
            if index is not None:
                raise ValueError("Assignment of a list to a list index.")
            if name in results:
                _refuse_second(name, values)
            try:
                results[name] = [parse(member) for member in re.split("[ ,]", members) if member]
            except ValueError:
                _refuse_value(name, kind, members, values)
            continue
        try:
            parsed = parse(value)
        except ValueError:
            _refuse_value(name, kind, value, values)
        if index is None:
            if name in results:
                _refuse_second(name, values)
            results[name] = parsed
            continue
        of_indices = results.setdefault(name, {})
        if not isinstance(of_indices, dict):
            _refuse_second(name, values)
        if int(index) in of_indices:
            _refuse_second(f"{name}[{int(index)}]", values)
        of_indices[int(index)] = parsed
    return results
