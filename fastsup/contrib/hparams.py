"""HParams: named, typed hyperparameters, and their text form, such as "rate=0.1,layers=[64,32],name=small"."""

from __future__ import annotations

import json
import numbers
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

__all__ = [
    "HParams",
    "parse_values",
]

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
    """Parses hyperparameters.

    Args:
      values: assignments `name=value`, `name=[value,value]` or `name[index]=value`, separated by commas. A boolean is
        `true`, `false` or an integer. A string must not contain commas or brackets.
      type_map: dictionary from names to the types of values or of list members.
      ignore_unknown: Whether to skip names that `type_map` lacks.

    Returns:
      Dictionary from names to values or lists. Assignments with an index become dictionaries from indices to values:
      "x=5,L=[1,2],a[1]=3" is {"x": 5, "L": [1, 2], "a": {1: 3}}.

    Raises:
      ValueError: If the text has another form, a name is unknown or assigned twice, a value has the wrong type, or a
        list is assigned to an index.
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


def _cast(name: str, kind: Any, value: Any) -> Any:
    """Converts a value to a hyperparameter's type. Converts an integer to a float, but no other number or string."""
    if type(value) is kind or issubclass(kind, type(None)):
        return value
    mismatch = (
        (issubclass(kind, str | bytes) and not isinstance(value, str | bytes))
        or issubclass(kind, bool) != isinstance(value, bool)
        or (issubclass(kind, numbers.Integral) and not isinstance(value, numbers.Integral))
        or (issubclass(kind, numbers.Number) and not isinstance(value, numbers.Number))
    )
    if mismatch:
        raise ValueError(f"Could not cast hparam '{name}' of type '{kind}' from value {value!r}")
    return kind(value)


class HParams:
    """Named hyperparameters as attributes: `HParams(rate=0.1, layers=[64, 32]).rate`.

    The first value of a hyperparameter determines its type: integer, float, boolean or string, or a list of one of
    these. The type never changes.

    Args:
      hparam_def: must be None. TensorFlow 2 has no `HParamDef`.
      model_structure: any object, for `get_model_structure`.
      **kwargs: the hyperparameters.

    Raises:
      ValueError: If a hyperparameter has the name of a method, a list is empty, or `hparam_def` isn't None. Methods
        that change values raise ValueError for a value of another type, and KeyError for an unknown name.
    """

    def __init__(self, hparam_def: Any = None, model_structure: Any = None, **kwargs: Any) -> None:
        # Maps each name to a type, and to True if the value is a list of that type.
        self._hparam_types: dict[str, tuple[Any, bool]] = {}
        self._model_structure = model_structure
        if hparam_def:
            raise ValueError(
                f"hparam_def={hparam_def!r} isn't supported: TensorFlow 2 has no HParamDef. Pass the values by name."
            )
        for name, value in kwargs.items():
            self.add_hparam(name, value)

    def add_hparam(self, name: str, value: Any) -> None:
        """Adds a hyperparameter.

        Args:
          name: its name.
          value: its value, which also determines its type.

        Raises:
          ValueError: If the object has an attribute with that name, or the value is an empty list.
        """
        if getattr(self, name, None) is not None:
            raise ValueError(f"Hyperparameter name is reserved: {name}")
        is_list = isinstance(value, list | tuple)
        if is_list and not value:
            raise ValueError(f"Multi-valued hyperparameters cannot be empty: {name}")
        self._hparam_types[name] = (type(value[0] if is_list else value), is_list)
        setattr(self, name, value)

    def set_hparam(self, name: str, value: Any) -> None:
        """Changes the value of a hyperparameter."""
        kind, is_list = self._hparam_types[name]
        if isinstance(value, list):
            if not is_list:
                raise ValueError(f"Must not pass a list for single-valued parameter: {name}")
            setattr(self, name, [_cast(name, kind, member) for member in value])
        else:
            if is_list:
                raise ValueError(f"Must pass a list for multi-valued parameter: {name}.")
            setattr(self, name, _cast(name, kind, value))

    def del_hparam(self, name: str) -> None:
        """Removes a hyperparameter if it exists."""
        if hasattr(self, name):
            delattr(self, name)
            del self._hparam_types[name]

    def parse(self, values: str) -> HParams:
        """Changes values from a text such as "rate=0.1,layers=[64,32]". Returns the object. See `parse_values`."""
        kinds = {name: kind for name, (kind, _) in self._hparam_types.items()}
        return self.override_from_dict(parse_values(values, kinds))

    def override_from_dict(self, values_dict: Mapping[str, Any]) -> HParams:
        """Changes values from a dictionary. Returns the object."""
        for name, value in values_dict.items():
            self.set_hparam(name, value)
        return self

    def set_from_map(self, values_map: Mapping[str, Any]) -> HParams:
        """Older name of `override_from_dict`."""
        return self.override_from_dict(values_dict=values_map)

    def parse_json(self, values_json: str | bytes) -> HParams:
        """Changes values from the text of a JSON object. Returns the object."""
        return self.override_from_dict(json.loads(values_json))

    def to_json(self, indent: Any = None, separators: Any = None, sort_keys: bool = False) -> str:
        """Returns the values as the text of a JSON object. Takes the arguments of `json.dumps`."""
        return json.dumps(self.values(), indent=indent, separators=separators, sort_keys=sort_keys)

    def values(self) -> dict[str, Any]:
        """Returns a dictionary from names to values."""
        return {name: getattr(self, name) for name in self._hparam_types}

    def get(self, key: str, default: Any = None) -> Any:
        """Returns the value of a hyperparameter.

        Args:
          key: its name.
          default: result if there is no such hyperparameter.

        Raises:
          ValueError: If the hyperparameter has another type than `default`.
        """
        if key not in self._hparam_types:
            return default
        if default is not None:
            kind, is_list = self._hparam_types[key]
            shown = f"list<{kind}>" if is_list else str(kind)
            mismatch = f"Hparam '{key}' of type '{shown}' is incompatible with default={default}"
            if is_list != isinstance(default, list):
                raise ValueError(mismatch)
            try:
                for value in default if is_list else [default]:
                    _cast(key, kind, value)
            except ValueError as error:
                raise ValueError(f"{mismatch}. {error}") from error
        return getattr(self, key)

    def set_model_structure(self, model_structure: Any) -> None:
        """Stores an object for `get_model_structure`."""
        self._model_structure = model_structure

    def get_model_structure(self) -> Any:
        """Returns the object given to `set_model_structure` or the constructor."""
        return self._model_structure

    def __contains__(self, key: object) -> bool:
        return key in self._hparam_types

    def __str__(self) -> str:
        return ",".join(f"{name}={value}" for name, value in self.values().items())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({sorted(self.values().items())})"
