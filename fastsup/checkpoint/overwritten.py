"""A save over a checkpoint of the same name: the earlier one stays there under another name until the save is durable.

TensorFlow replaces the files of a checkpoint one after the other. If the process is killed or the power is lost in
between, the index is that of one state and the data that of the other, and neither can be restored. A checkpoint of the
same step is written again after a partial restore, and where a program's steps don't change the global step.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator

from fastsup.checkpoint.directory import damage_of, stem_of, step_of
from fastsup.common.file_system import is_local, tensorflow_errors
from fastsup.common.files import copy_to_new, files_of_checkpoint, fsync_checkpoint, replace_link

__all__ = ["keeping_the_overwritten"]

# The number of digits of the other name. A restore tries what has the same name up to the number, which is the same.
_DIGITS = 20


@contextlib.contextmanager
def keeping_the_overwritten(path: str | None) -> Iterator[None]:
    """Wraps a save. If it fails after it has replaced a file, the earlier checkpoint keeps its other name.

    An index that is a symbolic link becomes a file: TensorFlow would write to what it leads to, such as another run's
    checkpoint.

    Args:
      path: path of the checkpoint, with the step; None if it isn't known. One that isn't local, or has no step, is
        overwritten as by TensorFlow; so is one of the first format, which has no index.

    Raises:
      tf.errors.OpError: the earlier checkpoint can't get its other name.
    """
    if path is None or not is_local(path) or not os.path.lexists(path + ".index"):
        yield
        return
    with tensorflow_errors("copied", path + ".index"):
        replace_link(path + ".index")
    if step_of(path) is None or not os.path.exists(path + ".index"):
        yield
        return
    before = _identities(path)
    _keep_under_another_name(path)
    try:
        yield
    except GeneratorExit:
        raise  # The thread that writes may still run.
    except BaseException:
        with contextlib.suppress(OSError):
            if _identities(path) == before:
                _delete(files_of_checkpoint(_other_name(path)))
        raise
    # Those of earlier saves too, that were killed here. The newest checkpoint is on the disk now.
    other_names = re.compile(re.escape(stem_of(path)) + rf"-\d{{{_DIGITS}}}\.(?:index|meta|data-.*)")
    directory = os.path.dirname(path)
    with contextlib.suppress(OSError):
        _delete(os.path.join(directory, name) for name in os.listdir(directory or ".") if other_names.fullmatch(name))


def _other_name(path: str) -> str:
    return os.path.join(os.path.dirname(path), f"{stem_of(path)}-{step_of(path):0{_DIGITS}d}")


def _identities(path: str) -> dict[str, tuple[int, int, int]]:
    """What tells whether a file of a checkpoint has been replaced or written to."""
    statuses = {name: os.lstat(name) for name in files_of_checkpoint(path)}
    return {name: (status.st_ino, status.st_size, status.st_mtime_ns) for name, status in statuses.items()}


def _delete(names: Iterable[str]) -> None:
    for name in names:
        # One that can't be deleted does no harm: the newer one is tried first.
        with contextlib.suppress(OSError):
            os.unlink(name)


def _keep_under_another_name(path: str) -> None:
    """Gives a complete checkpoint a second name, durably."""
    other = _other_name(path)
    if os.path.exists(other + ".index") and damage_of(path) is not None:
        return  # Of a save that has failed: the other one is intact.
    stem = len(os.path.basename(path))
    try:
        with tensorflow_errors("kept while it is overwritten", path):
            # The index last: with it, the files are a checkpoint.
            for name in sorted(files_of_checkpoint(path), key=lambda name: name.endswith(".index")):
                _link_or_copy(name, other + os.path.basename(name)[stem:])
            fsync_checkpoint(other)
    except BaseException:
        with contextlib.suppress(OSError):
            _delete(files_of_checkpoint(other))
        raise


def _link_or_copy(name: str, other: str) -> None:
    """Gives a file of a checkpoint a second name. An index is copied, since TensorFlow may write it in place."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(other)
    if not name.endswith(".index"):
        with contextlib.suppress(OSError):
            os.link(name, other)
            return
    copy_to_new(name, other)
