"""A directory as people give it: a string, or a `pathlib.Path`."""

from __future__ import annotations

import os
from typing import Any

__all__ = ["directory_path"]


def directory_path(name: str, value: Any) -> Any:
    """The path of a directory as TensorFlow's functions take it, which refuse a `pathlib.Path` when they write to it.

    Args:
      name: the argument that it was given for.
      value: a path, or None for no directory.

    Returns:
      The path as a string, or as it was given if that is bytes; None if there is none.

    Raises:
      TypeError: it is no path.
    """
    if value is None:
        return None
    try:
        return os.fspath(value)
    except TypeError as error:
        raise TypeError(f"{error}: {name}={value!r} must be the path of a directory.") from None
