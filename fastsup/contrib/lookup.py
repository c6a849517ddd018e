"""The functions of `tf.contrib.lookup` whose arguments were later renamed, based on TensorFlow's lookup tables."""

from __future__ import annotations

from typing import Any

from tensorflow.python.framework import dtypes
from tensorflow.python.ops import lookup_ops

__all__ = [
    "index_table_from_tensor",
    "index_to_string",
    "index_to_string_table_from_tensor",
    "string_to_index",
    "string_to_index_table_from_file",
    "string_to_index_table_from_tensor",
]


def index_table_from_tensor(
    mapping: Any,
    num_oov_buckets: int = 0,
    default_value: int = -1,
    hasher_spec: Any = lookup_ops.FastHashSpec,
    dtype: Any = dtypes.string,
    name: str | None = None,
) -> Any:
    """Creates a table from keys to their positions.

    Args:
      mapping: one-dimensional tensor of the keys.
      num_oov_buckets: number of additional ids, after the positions, for keys that aren't in `mapping`.
      default_value: id of such a key if there are no additional ids.
      hasher_spec: `HasherSpec` that assigns the additional ids.
      dtype: type of the keys.
      name: name of the operation.

    Returns:
      The lookup table, which is added to the graph's table initializers.

    Raises:
      ValueError: If the mapping is None, or `num_oov_buckets` is negative.
    """
    return lookup_ops.index_table_from_tensor(mapping, num_oov_buckets, default_value, hasher_spec, dtype, name)


def string_to_index_table_from_tensor(
    mapping: Any,
    num_oov_buckets: int = 0,
    default_value: int = -1,
    hasher_spec: Any = lookup_ops.FastHashSpec,
    name: str | None = None,
) -> Any:
    """Original name of `index_table_from_tensor`, for strings."""
    return index_table_from_tensor(mapping, num_oov_buckets, default_value, hasher_spec, name=name)


def string_to_index_table_from_file(
    vocabulary_file: Any = None,
    num_oov_buckets: int = 0,
    vocab_size: int | None = None,
    default_value: int = -1,
    hasher_spec: Any = lookup_ops.FastHashSpec,
    name: str | None = None,
) -> Any:
    """Creates a table from the lines of a file to their numbers. Original name of `index_table_from_file`.

    The other arguments are the same as for `index_table_from_tensor`.

    Args:
      vocabulary_file: path of the file.
      vocab_size: number of lines to use. If None, uses all.
    """
    return lookup_ops.index_table_from_file(
        vocabulary_file, num_oov_buckets, vocab_size, default_value, hasher_spec, name=name
    )


def string_to_index(tensor: Any, mapping: Any, default_value: int = -1, name: str | None = None) -> Any:
    """Looks up the positions of strings in a mapping, with a new table.

    Args:
      tensor: the strings.
      mapping: one-dimensional tensor of all strings.
      default_value: id of a string that isn't in `mapping`.
      name: name of the operation.

    Returns:
      The position of each string in `mapping`, int64.
    """
    return index_table_from_tensor(mapping, default_value=default_value, name=name).lookup(tensor)


def index_to_string_table_from_tensor(mapping: Any, default_value: str = "UNK", name: str | None = None) -> Any:
    """Creates a table from positions to strings.

    Args:
      mapping: one-dimensional tensor of the strings.
      default_value: string for a position that isn't in `mapping`.
      name: name of the operation.

    Returns:
      The lookup table, which is added to the graph's table initializers.

    Raises:
      ValueError: If the mapping is None.
    """
    return lookup_ops.index_to_string_table_from_tensor(mapping, default_value, name)


def index_to_string(tensor: Any, mapping: Any, default_value: str = "UNK", name: str | None = None) -> Any:
    """Looks up the strings at positions in a mapping, with a new table.

    Args:
      tensor: the positions, int64.
      mapping: one-dimensional tensor of all strings.
      default_value: string for a position that isn't in `mapping`.
      name: name of the operation.

    Returns:
      The string at each position.
    """
    return index_to_string_table_from_tensor(mapping, default_value, name).lookup(tensor)
