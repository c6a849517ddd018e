"""The directories of exports, and their extra assets.

An export has its final name only while it is complete. It is written, and deleted, under a temporary name.
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
from tensorflow.python.util import compat

from fastsup.common.errors import writing_files
from fastsup.common.file_system import delete_tree, is_local, tensorflow_errors
from fastsup.common.files import fsync_directory, fsync_directory_and_above, fsync_tree

__all__ = [
    "check_assets",
    "copy_assets",
    "delete_export",
    "new_export_folders",
    "publish_export",
    "temporary_export",
]

# The temporary names that TensorFlow and `extend_export_strategy` use.
_NAME = re.compile(r"temp-(?:(?:base|post)-export-)?\d{10}")
_PROCESS_START = time.time()
# Maximum number of attempts, the same as for TensorFlow's choice of the final name.
_ATTEMPTS = 10


def new_export_folders(base: str | bytes | os.PathLike[Any]) -> tuple[bytes, bytes]:
    """Chooses the final and temporary path of an export. Waits a second if an export failed in the current second."""
    for _ in range(_ATTEMPTS):
        final = model_utils.get_timestamped_export_dir(os.fspath(base))
        temporary = model_utils.get_temp_export_dir(final)
        # The temporary folder exists if an export failed and its folder couldn't be deleted.
        if not file_io.file_exists_v2(temporary):
            return final, temporary
        time.sleep(1)
    raise RuntimeError(
        f"The names of {_ATTEMPTS} seconds in a row are taken in {os.fsdecode(base)}: delete old exports in it."
    )


@contextlib.contextmanager
def temporary_export(folder: str | bytes) -> Iterator[None]:
    """Wraps the writing of a SavedModel to a folder. First deletes the folders that killed processes left there."""
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

    Older exports may be deleted next, and a server assumes that the newest one is complete. A local export is therefore
    flushed to the disk first.
    """
    if not is_local(final):
        file_io.rename_v2(folder, final)
        return
    with tensorflow_errors("flushed to the disk"):
        fsync_tree(folder)
        file_io.rename_v2(folder, final)
        fsync_directory_and_above(os.path.dirname(os.fsdecode(final)) or ".")


def delete_export(path: str) -> None:
    """Deletes an export. Renames a local export first, so that readers never see part of it."""
    deleted = path
    if is_local(path):
        directory, name = os.path.split(path)
        # The temporary name marks an unfinished export, which a later export deletes if this process can't.
        unfinished = os.path.join(directory, f"temp-{name}")
        with contextlib.suppress(errors.AlreadyExistsError):
            file_io.rename_v2(path, unfinished)
            with tensorflow_errors("flushed to the disk"):
                fsync_directory(directory)
            deleted = unfinished
    delete_tree(deleted)


def _delete_stale(directory: str) -> None:
    """Deletes temporary folders that haven't changed since this process started, so no process writes to them."""
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


def check_assets(assets_extra: Any) -> None:
    """Rejects assets that don't exist. Called before any file is written."""
    if assets_extra and not isinstance(assets_extra, dict):
        raise TypeError(f"assets_extra must be a dictionary from destinations to files, got {assets_extra!r}.")
    for destination, source in (assets_extra or {}).items():
        if not file_io.file_exists(source):
            raise errors.NotFoundError(
                None, None, f"{source}; No such file or directory. assets_extra lists it as {destination!r}."
            )


def copy_assets(assets_extra: dict[Any, Any], export_dir: Any) -> None:
    """Copies assets to an export."""
    for relative, source in assets_extra.items():
        destination = os.path.join(compat.as_bytes(export_dir), b"assets.extra", compat.as_bytes(relative))
        file_io.recursive_create_dir(os.path.dirname(destination))
        file_io.copy(source, destination)
