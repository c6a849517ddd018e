"""Attributes and methods that an object exposes and one of its parts implements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Delegated", "delegate"]


class Delegated:
    """Reads and assigns an attribute of a part.

    Programs and subclasses read and assign TensorFlow's private attributes, so a part has the only copy of the value. A
    value that a subclass assigns before the part is created is replaced then.

    Args:
      part: name of the attribute with the part.
      name: name of the part's attribute.
    """

    def __init__(self, part: str, name: str) -> None:
        self._part = part
        self._name = name

    def __set_name__(self, owner: type, name: str) -> None:
        self._name_of_whole = name

    def __get__(self, whole: Any, owner: type) -> Any:
        if whole is None:
            return self
        values = vars(whole)
        if self._part in values or self._name_of_whole not in values:
            return getattr(getattr(whole, self._part), self._name)
        return values[self._name_of_whole]

    def __set__(self, whole: Any, value: Any) -> None:
        values = vars(whole)
        if self._part in values:
            setattr(values[self._part], self._name, value)
        else:
            values[self._name_of_whole] = value


def delegate(part: str, name: str) -> Callable[..., Any]:
    """Creates a method that calls a part's method, and that a subclass may override.

    Args:
      part: name of the attribute with the part.
      name: name of the part's method.
    """

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(getattr(self, part), name)(*args, **kwargs)

    return method
