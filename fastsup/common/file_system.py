"""Files that may be on another file system than the local one, such as "gs://bucket/file"."""

from __future__ import annotations

import os

from tensorflow.python.lib.io import file_io

from fastsup.common import files

__all__ = ["write_whole"]


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Writes a file so that it has either all of the new content or, after an error, the old one.

    Args:
      path: the file's path, local or with a scheme. Its directory must exist. With a scheme, TensorFlow writes the file
        under another name and renames it.
      text: the file's new content; it is written in UTF-8.

    Raises:
      OSError: the file can't be written.
      tf.errors.OpError: the same, on a file system that isn't local.
    """
    if "://" in os.fspath(path):
        file_io.atomic_write_string_to_file(os.fspath(path), text)
    else:
        files.write_whole(path, text)
