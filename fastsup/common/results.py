"""The results of steps that ran in one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["each_result"]


def each_result(values: Any) -> list[Any]:
    """Splits the results of steps that ran in one call.

    Args:
      values: the results of all steps, in the structure of one result, as arrays whose first dimension is the steps.

    Returns:
      A list with one result per step.
    """
    if isinstance(values, Mapping):
        parts = {name: each_result(value) for name, value in values.items()}
        return [dict(zip(parts, items, strict=True)) for items in zip(*parts.values(), strict=True)]
    if isinstance(values, tuple | list):
        rows = zip(*map(each_result, values), strict=True)
        return [values._make(row) if hasattr(values, "_make") else type(values)(row) for row in rows]
    return list(values)
