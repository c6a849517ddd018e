"""A cost that advice is about."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Cost"]


class Cost(NamedTuple):
    """A cost that the program can change.

    Attributes:
      name: its name, as the object of "Look first at".
      total_ns: its nanoseconds.
      text: the reason and the remedy.
    """

    name: str
    total_ns: int
    text: str
