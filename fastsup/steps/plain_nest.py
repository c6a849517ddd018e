"""`tf.nest` for Python structures without TensorFlow: dicts, lists, tuples and named tuples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["flatten", "is_nested", "map_structure", "pack_sequence_as"]


def is_nested(structure: Any) -> bool:
    """Returns True for a dict, list or tuple."""
    return isinstance(structure, dict | list | tuple)


def _children(structure: Any) -> list[Any]:
    # A dict's values are in the order of the keys, regardless of the insertion order.
    return [structure[key] for key in sorted(structure)] if isinstance(structure, dict) else list(structure)


def flatten(structure: Any) -> list[Any]:
    """Returns the leaves of a structure, in the order of `tf.nest.flatten`.

    Args:
      structure: the structure, or a leaf.
    """
    if not is_nested(structure):
        return [structure]
    return [leaf for child in _children(structure) for leaf in flatten(child)]


def map_structure(function: Callable[[Any], Any], structure: Any) -> Any:
    """Returns a structure in which each leaf is replaced with a function's result.

    Args:
      function: function of one leaf.
      structure: the structure, or a leaf.
    """
    if not is_nested(structure):
        return function(structure)
    mapped = [map_structure(function, child) for child in _children(structure)]
    if isinstance(structure, dict):
        by_key = dict(zip(sorted(structure), mapped, strict=True))
        return type(structure)((key, by_key[key]) for key in structure)
    return type(structure)(*mapped) if hasattr(structure, "_fields") else type(structure)(mapped)


def pack_sequence_as(structure: Any, flat: Sequence[Any]) -> Any:
    """Returns a structure with other leaves.

    Args:
      structure: the original structure, or a leaf.
      flat: the leaves, in the order of `flatten`.
    """
    leaves = iter(flat)
    return map_structure(lambda _: next(leaves), structure)
