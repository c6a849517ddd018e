"""A mark in a directory whose first save is under way.

Until the first save has ended, no state file names a checkpoint. If the machine loses power then, the index of that
checkpoint may be whole and its data torn: the directory looks like one that has lost its state file, whose checkpoints
are damaged. The mark tells the two apart: with it, nothing had been saved yet, and training begins.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from tensorflow.python.framework import errors

from fastsup.checkpoint.directory import FIRST_SAVE, STATE_FILE, has_checkpoint
from fastsup.common.file_system import exists, is_local, tensorflow_errors, write_whole
from fastsup.common.files import fsync_directory_and_above

__all__ = ["abandon_save", "begin_save", "end_save", "marking_the_first"]

_TEXT = "The first save in this directory has begun and not ended. A later save deletes this file.\n"


def begin_save(directory: str) -> None:
    """Makes the directory and the mark durable, unless a save has ended in it before.

    Args:
      directory: the directory. One that doesn't exist or isn't local gets no mark.

    Raises:
      tf.errors.OpError: the mark can't be written.
    """
    # Without a directory, the save itself fails.
    if is_local(directory) and os.path.isdir(directory or ".") and not exists(os.path.join(directory, STATE_FILE)):
        write_whole(os.path.join(directory, FIRST_SAVE), _TEXT)
        with tensorflow_errors("flushed to the disk", directory):
            fsync_directory_and_above(directory or ".")


def end_save(directory: str) -> None:
    """Deletes the mark, after a state file has become durable.

    Args:
      directory: the directory.
    """
    if is_local(directory):
        # One that can't be deleted does no harm: it has no meaning where there is a state file.
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(directory, FIRST_SAVE))


def abandon_save(directory: str) -> None:
    """Deletes the mark after a save that has failed, unless the directory has a checkpoint that may be torn.

    Args:
      directory: the directory.
    """
    # If the directory can't be read, the mark stays: it does no harm.
    with contextlib.suppress(OSError, errors.OpError):
        if is_local(directory) and not has_checkpoint(directory or "."):
            end_save(directory)


@contextlib.contextmanager
def marking_the_first(directory: str) -> Iterator[None]:
    """Wraps a save.

    Args:
      directory: as for `begin_save`. So are the errors.
    """
    begin_save(directory)
    try:
        yield
    except BaseException:
        abandon_save(directory)
        raise
    end_save(directory)
