"""Exports have their names exactly while they are whole.

They are made in a folder with a temporary name, and deleted under one. An export that fails, or is killed, leaves none.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from typing import Any

from tensorflow.python.framework import errors
from tensorflow.python.lib.io import file_io
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.saved_model import model_utils

from fastsup.common.errors import writing_files
from fastsup.common.file_system import delete_tree, is_local, tensorflow_errors
from fastsup.common.files import fsync_directory, fsync_directory_and_above, fsync_tree

__all__ = ["delete_export", "new_export_folders", "publish_export", "temporary_export"]

# The names that TensorFlow and `extend_export_strategy` give these folders.
_NAME = re.compile(r"temp-(?:(?:base|post)-export-)?\d{10}")
_PROCESS_START = time.time()
# As many as TensorFlow makes for the final name.
_ATTEMPTS = 10


def new_export_folders(base: str | bytes | os.PathLike[Any]) -> tuple[bytes, bytes]:
    """Chooses the names of an export. Waits for the next second where an export has failed in this one.

    Args:
      base: the directory of the exports.

    Returns:
      (final, temporary): the path of the export, and that of the folder in which it is made.

    Raises:
      RuntimeError: the names of ten seconds in a row are taken.
    """
    for _ in range(_ATTEMPTS):
        final = model_utils.get_timestamped_export_dir(os.fspath(base))
        temporary = model_utils.get_temp_export_dir(final)
        # One that couldn't be deleted.
        if not file_io.file_exists_v2(temporary):
            return final, temporary
        time.sleep(1)
    raise RuntimeError(
        f"The names of {_ATTEMPTS} seconds in a row are taken in {os.fsdecode(base)}: delete old exports there."
    )


@contextlib.contextmanager
def temporary_export(folder: str | bytes) -> Iterator[None]:
    """Wraps the making of a SavedModel in a folder. First deletes the folders that killed processes have left there.

    Args:
      folder: path of the folder.

    Raises:
      Exception: the error of the block, after the folder is deleted.
    """
    path = os.fsdecode(folder)
    _delete_stale(os.path.dirname(path))
    try:
        with writing_files():
            yield
    except BaseException:
        with contextlib.suppress(Exception):
            delete_tree(path)
        raise


def publish_export(folder: str | bytes, final: str | bytes) -> None:
    """Gives a complete SavedModel its name.

    Older exports may be deleted next, and a server takes the newest one for complete: so it is flushed to the
    disk first, where the path is local.

    Args:
      folder: path of the folder in which it was made.
      final: its path from now on.

    Raises:
      tf.errors.OpError: the disk has failed, or the folder can't be renamed.
    """
    if not is_local(final):
        file_io.rename_v2(folder, final)
        return
    with tensorflow_errors("flushed to the disk"):
        fsync_tree(folder)
        file_io.rename_v2(folder, final)
        fsync_directory_and_above(os.path.dirname(os.fsdecode(final)) or ".")


def delete_export(path: str) -> None:
    """Deletes an export. Where the path is local, it loses its name first: it is never seen in parts.

    Args:
      path: path of the export.

    Raises:
      tf.errors.OpError: the export can't be renamed or deleted.
    """
    deleted = path
    if is_local(path):
        directory, name = os.path.split(path)
        # As one that was never finished, which a later export deletes if this process can't.
        unfinished = os.path.join(directory, f"temp-{name}")
        with contextlib.suppress(errors.AlreadyExistsError):
            file_io.rename_v2(path, unfinished)
            with tensorflow_errors("flushed to the disk"):
                fsync_directory(directory)
            deleted = unfinished
    delete_tree(deleted)


def _delete_stale(directory: str) -> None:
    """Deletes the temporary folders that haven't changed since this process started: no process works in them."""
    if not is_local(directory):
        return
    try:
        with os.scandir(directory or ".") as entries:
            found = [
                entry.path for entry in entries if _NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
            ]
        for path in found:
            if _last_change(path) < _PROCESS_START:
                logging.info("Deleting %s, an export that was never finished.", path)
                delete_tree(path)
    except (FileNotFoundError, errors.NotFoundError):
        pass
    except (OSError, errors.OpError) as error:
        logging.warning("Exports in %s that were never finished can't be deleted: %s", directory, error)


def _last_change(path: str) -> float:
    folders = [folder for folder, _, _ in os.walk(path)]
    return max(os.stat(folder).st_mtime for folder in folders)
