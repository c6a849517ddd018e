"""Output files: found out to be unwritable before the work, and written whole."""

from __future__ import annotations

import os
import stat
import tempfile

__all__ = ["check_writable", "write_whole"]


def check_writable(path: str | os.PathLike[str]) -> None:
    """Finds out whether a file could be written, without leaving anything behind.

    Args:
      path: the file's path.

    Raises:
      OSError: it couldn't.
    """
    if _is_special(path):
        if not os.access(path, os.W_OK):
            raise PermissionError(f"{os.fspath(path)} may not be written to.")
        return
    descriptor, name = _new_beside(path)
    os.close(descriptor)
    os.unlink(name)


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Writes a file so that there is all of it or, where that fails, what was there before.

    A device or a pipe is written to. A link stays one, and a file that was there keeps its permissions.

    Args:
      path: the file's path.
      text: what is written, in UTF-8.

    Raises:
      OSError: it can't be written.
    """
    if _is_special(path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return
    target = os.path.realpath(path)
    descriptor, name = _new_beside(path)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, _mode(target))
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


def _new_beside(path: str | os.PathLike[str]) -> tuple[int, str]:
    """An empty file, open, in the folder of the one to write. Errors name that one."""
    if not os.fspath(path):
        raise FileNotFoundError("it has no name.")
    if os.path.isdir(path):
        raise IsADirectoryError(f"{os.fspath(path)} is a directory.")
    try:
        return tempfile.mkstemp(dir=os.path.dirname(os.path.realpath(path)), prefix=".fastsup-")
    except OSError as error:
        raise type(error)(error.errno, error.strerror, os.fspath(path)) from None


def _is_special(path: str | os.PathLike[str]) -> bool:
    """Whether this is a device, a pipe or the like, which isn't to be replaced by a file."""
    if os.path.isdir(path):
        return False
    if os.path.realpath(os.path.dirname(os.path.abspath(path))).startswith(("/dev", "/proc")):
        return True  # /dev/stdout, say, whatever that is.
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


def _mode(path: str) -> int:
    """The permissions of a file, or those with which open() would make it. (mkstemp keeps others out.)"""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
