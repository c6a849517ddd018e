"""The extra assets of a SavedModel: files that are copied to `assets.extra`."""

from __future__ import annotations

import os
from typing import Any

from tensorflow.python.framework import errors
from tensorflow.python.lib.io import file_io
from tensorflow.python.util import compat

__all__ = ["check_assets", "copy_assets"]


def check_assets(assets_extra: Any) -> None:
    """Refuses assets that don't exist, before a file is written.

    Args:
      assets_extra: dictionary from destinations under `assets.extra` to files, or None.

    Raises:
      TypeError: the argument isn't a dictionary.
      tf.errors.NotFoundError: a file doesn't exist.
    """
    if assets_extra and not isinstance(assets_extra, dict):
        raise TypeError(f"assets_extra must be a dictionary from destinations to files, got {assets_extra!r}.")
    for destination, source in (assets_extra or {}).items():
        if not file_io.file_exists(source):
            raise errors.NotFoundError(
                None, None, f"{source}; No such file or directory. assets_extra wants it as {destination!r}."
            )


def copy_assets(assets_extra: dict[Any, Any], export_dir: Any) -> None:
    """Copies assets to an export.

    Args:
      assets_extra: dictionary from destinations under `assets.extra` to files.
      export_dir: directory of the export.
    """
    for relative, source in assets_extra.items():
        destination = os.path.join(compat.as_bytes(export_dir), b"assets.extra", compat.as_bytes(relative))
        file_io.recursive_create_dir(os.path.dirname(destination))
        file_io.copy(source, destination)
