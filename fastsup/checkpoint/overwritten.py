"""A save over a checkpoint of the same name: the earlier one stays there under another name until the save is durable.

TensorFlow replaces the files of a checkpoint one after the other. If the process is killed or the power is lost in
between, the index is that of one state and the data that of the other, and neither can be restored. A checkpoint of the
same step is written again after a partial restore, and where a program's steps don't change the global step.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator

from fastsup.checkpoint.directory import damage_of, stem_of, step_of
from fastsup.common.file_system import is_local, tensorflow_errors
from fastsup.common.files import files_of_checkpoint, fsync_checkpoint

__all__ = ["keeping_the_overwritten"]

# The number of digits of the other name. A restore tries what has the same name up to the number, which is the same.
_DIGITS = 20


@contextlib.contextmanager
def keeping_the_overwritten(path: str | None) -> Iterator[None]:
    """Wraps a save. If it fails in between, the earlier checkpoint keeps its other name, and a restore uses it.

    Args:
      path: path of the checkpoint, with the step; None if it isn't known.

    Raises:
      tf.errors.OpError: the earlier checkpoint can't get its other name.
    """
    earlier = [] if path is None else _under_another_name(path)
    try:
        yield
    except BaseException:
        # The other name stays if a file has been replaced, or if that can't be found out.
        with contextlib.suppress(Exception):
            if path is not None and earlier and damage_of(path) is None:
                _delete(earlier)
        raise
    _delete(earlier)


def _delete(names: list[str]) -> None:
    for name in names:
        # One that can't be deleted does no harm: the newer one is tried first.
        with contextlib.suppress(OSError):
            os.unlink(name)


def _under_another_name(path: str) -> list[str]:
    """Gives a complete checkpoint a second name, durably. Returns the names of its files; none if there is none."""
    step = step_of(path)
    if step is None or not is_local(path) or not os.path.exists(path + ".index"):
        return []
    other = os.path.join(os.path.dirname(path), f"{stem_of(path)}-{step:0{_DIGITS}d}")
    if os.path.exists(other + ".index") and damage_of(path) is not None:
        # Of a save that has failed: this is the intact one.
        return files_of_checkpoint(other)
    with tensorflow_errors("kept while it is overwritten", path):
        # The index last: with it, the files are a checkpoint.
        for name in sorted(files_of_checkpoint(path), key=lambda name: name.endswith(".index")):
            kept = other + name[len(path) :]
            with contextlib.suppress(FileNotFoundError):
                os.unlink(kept)
            # TensorFlow writes a new file of data, and replaces the old one by it. An index may be written in place.
            if not name.endswith(".index"):
                with contextlib.suppress(OSError):
                    os.link(name, kept)
                    continue
            shutil.copyfile(name, kept)
        fsync_checkpoint(other)
    return files_of_checkpoint(other)
