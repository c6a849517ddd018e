"""Checkpoints that are on the disk, and not only on their way there, before anything names them."""

from __future__ import annotations

import errno
import glob
import os
from typing import Any

# What file systems say that can't do it, or needn't.
_CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EROFS)


def make_durable(prefix: Any) -> None:
    """Has the files of a checkpoint written to the disk. Does nothing where they are on another machine.

    Args:
      prefix: path of the checkpoint, without the endings of its files; a string or bytes.

    Raises:
      OSError: the disk failed.
    """
    path = os.fsdecode(prefix)
    for name in (path, *glob.glob(glob.escape(path) + ".index"), *glob.glob(glob.escape(path) + ".data-*")):
        if os.path.isfile(name):
            _sync(name)
    directory = os.path.dirname(path) or "."
    if os.path.isdir(directory):
        _sync(directory)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(descriptor)
