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

__all__ = ["marking_the_first"]

_TEXT = "The first save in this directory has begun and not ended. A later save deletes this file.\n"


@contextlib.contextmanager
def marking_the_first(directory: str) -> Iterator[None]:
    """Wraps a save.

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
    try:
        yield
    except GeneratorExit:
        raise  # The program has dropped a save that a thread may still write.
    except BaseException:
        # The mark stays if the directory has an index, which may be torn, or if it can't be read.
        with contextlib.suppress(OSError, errors.OpError):
            if not has_checkpoint(directory or "."):
                os.unlink(mark)
        raise
    # One that can't be deleted does no harm: it has no meaning where there is a state file.
    with contextlib.suppress(OSError):
        os.unlink(mark)
