"""The table of the savers."""

from __future__ import annotations

from typing import Any

__all__ = ["HEADINGS", "ORDERED_HEADINGS", "ordered_rows_of", "rows_of"]

_POWER = ("states checked", "ok", "older", "from the beginning", "error", "mixed")
_KEYS = ("checked", *_POWER[1:])
HEADINGS = ("saver", *_POWER, "faults", "ok", "lost", "unreported")
ORDERED_HEADINGS = ("saver", *_POWER)


def rows_of(savers: dict[str, Any]) -> list[list[str]]:
    """The rows: the loss of power on a disk that promises what POSIX does, and failing operations.

    Args:
      savers: the results by title.
    """
    return [
        [title, *_counts(result["power"]["posix"]), *(str(result["failing"][key]) for key in _FAILING)]
        if "failed" not in result
        else [title, result["failed"], *[""] * (len(HEADINGS) - 2)]
        for title, result in savers.items()
    ]


def ordered_rows_of(savers: dict[str, Any]) -> list[list[str]]:
    """The rows of the loss of power on a file system that keeps the order of changes.

    Args:
      savers: the results by title.
    """
    return [[title, *_counts(result["power"]["ordered"])] for title, result in savers.items() if "failed" not in result]


_FAILING = ("faults", "ok", "lost", "unreported")


def _counts(power: dict[str, Any]) -> list[str]:
    return [str(power[key]) for key in _KEYS]
