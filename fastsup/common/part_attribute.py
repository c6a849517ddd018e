"""An attribute of an object that one of its parts holds."""

from __future__ import annotations

from typing import Any

__all__ = ["PartAttribute"]


class PartAttribute:
    """Reads and assigns an attribute of a part, under a name of the whole.

    Programs and subclasses read and assign TensorFlow's private attributes, so a part has the only copy of the value.

    Args:
      part: name of the attribute with the part.
      name: name of the part's attribute.
    """

    def __init__(self, part: str, name: str) -> None:
        self._part = part
        self._name = name

    def __get__(self, whole: Any, owner: type) -> Any:
        return self if whole is None else getattr(getattr(whole, self._part), self._name)

    def __set__(self, whole: Any, value: Any) -> None:
        setattr(getattr(whole, self._part), self._name, value)
