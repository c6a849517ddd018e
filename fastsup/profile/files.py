"""Output files: found out to be unwritable before the work, and written whole."""

from __future__ import annotations

import os
import tempfile

__all__ = ["check_writable", "write_whole"]


def check_writable(path: str | os.PathLike[str]) -> None:
    """Finds out whether a file could be written, without leaving anything behind.

    Args:
      path: the file's path.

    Raises:
      OSError: it couldn't.
    """
    if os.path.isdir(path):
        raise IsADirectoryError(f"{os.fspath(path)} is a directory.")
    descriptor, name = tempfile.mkstemp(dir=_folder(path), prefix=".fastsup-")
    os.close(descriptor)
    os.unlink(name)


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Writes a file so that there is all of it or, where that fails, what was there before.

    Args:
      path: the file's path.
      text: what is written, in UTF-8.

    Raises:
      OSError: it can't be written.
    """
    descriptor, name = tempfile.mkstemp(dir=_folder(path), prefix=".fastsup-")
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # As open() would have made it; mkstemp keeps others out.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _folder(path: str | os.PathLike[str]) -> str:
    return os.path.dirname(os.path.abspath(path))
