"""Small files that are there whole or not at all, also after a crash."""

from __future__ import annotations

import contextlib
import os

from tensorflow.python.lib.io import file_io

__all__ = ["write_whole"]


def write_whole(path: str, text: str) -> None:
    """Writes a text file under another name, has it on the disk, and gives it its name.

    Args:
      path: path of the file. Its directory must exist. On other file systems than the local one, what TensorFlow can
        do is done: a file is written and then renamed.
      text: what to write.

    Raises:
      OSError or tf.errors.OpError: it can't be written. Then what was there before is still there.
    """
    if "://" in path:
        file_io.atomic_write_string_to_file(path, text)
        return
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
