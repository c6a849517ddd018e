"""A mark in a directory whose first save is under way.

Until the first save has ended, no state file names a checkpoint. If the machine loses power then, the index of that
checkpoint may be whole and its data torn: the directory looks like one that has lost its state file, whose checkpoints
are damaged. The mark tells the two apart: with it, nothing had been saved yet, and training begins.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from fastsup.checkpoint.directory import FIRST_SAVE, STATE_FILE
from fastsup.common.file_system import exists, is_local, tensorflow_errors, write_whole
from fastsup.common.files import fsync_directory_and_above

__all__ = ["marking_the_first"]

_TEXT = "The first save in this directory has begun and not ended. A later save deletes this file.\n"


@contextlib.contextmanager
def marking_the_first(directory: str) -> Iterator[None]:
    """Wraps a save. If it fails, the mark stays.

    Args:
      directory: the directory. One that doesn't exist or isn't local gets no mark.

    Raises:
      tf.errors.OpError: the mark can't be written.
    """
    if not is_local(directory):
        yield
        return
    mark = os.path.join(directory, FIRST_SAVE)
    # Without a directory, the save itself fails.
    if os.path.isdir(directory or ".") and not exists(os.path.join(directory, STATE_FILE)):
        write_whole(mark, _TEXT)
        with tensorflow_errors("flushed to the disk", directory):
            fsync_directory_and_above(directory or ".")
    yield
    # One that can't be deleted does no harm: it has no meaning where there is a state file.
    with contextlib.suppress(OSError):
        os.unlink(mark)
