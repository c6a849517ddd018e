"""Local files: checked beforehand, written completely or not at all, and flushed to the disk."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator

__all__ = [
    "check_writable", "copy_to_new", "delete_tree", "files_of_checkpoint", "fsync_checkpoint", "fsync_directory",
    "fsync_directory_and_above", "fsync_tree", "make_checkpoint_directory", "naming", "replace_link", "replace_whole",
    "write_whole",
]  # fmt: skip

# Errors of file systems that can't flush a file, or needn't.
_CANNOT_FSYNC = (errno.EINVAL, errno.ENOTSUP, errno.EROFS)
# The suffixes of a checkpoint's files, in TensorFlow's two formats, and the end of the pattern for the shards of the
# first format.
_SUFFIX = r"(?:\.index|\.meta|\.data-\d{5}-of-\d{5}|-\d{5}-of-\d{5})?"
_V1_SHARDS = re.compile(r"-\?+-of-\d+$")


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Adds a file's name to the errors of its writes and flushes, which have none.

    Args:
      path: the file's path.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = os.fspath(path)
        raise


def check_writable(path: str | os.PathLike[str]) -> None:
    """Checks that a file can be written, without leaving one.

    Args:
      path: the file's path.

    Raises:
      OSError: If the file can't be written.
    """
    if _is_special(path):
        if not os.access(path, os.W_OK):
            raise PermissionError(f"{os.fspath(path)} may not be written to.")
        return
    descriptor, name = _new_temporary(path, os.path.realpath(path))
    os.close(descriptor)
    os.unlink(name)


def make_checkpoint_directory(directory: str) -> str:
    """Creates a directory for checkpoints, so that an unusable one is detected before the first step.

    Args:
      directory: its path. It may already exist.

    Returns:
      The absolute path.

    Raises:
      OSError: If the directory can't be created or written to.
    """
    path = os.path.abspath(directory)
    try:
        os.makedirs(path, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, "Checkpoints need a directory", path) from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "The directory for checkpoints can't be written to", path)
    return path


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Writes a file that the user named. It contains either all of the new content or, after an error, the old content.

    A device or a pipe is written to. A symbolic link remains a link, and an existing file keeps its permissions.

    Args:
      path: the file's path. Its directory must exist.
      text: the file's new content, which is written in UTF-8.

    Raises:
      OSError: If the file can't be written.
    """
    if _is_special(path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    else:
        _replace(path, os.path.realpath(path), text)


def replace_whole(path: str | os.PathLike[str], text: str) -> None:
    """Durably replaces the entry of its name (a file, a symbolic link, or a pipe) with a new file.

    For files whose name the user hasn't chosen. A user who may write to their directory, or copied it, must not cause
    another file to be overwritten. An existing file's permissions are kept.

    Args:
      path: the file's path. Its directory must exist.
      text: the file's new content, which is written in UTF-8.

    Raises:
      OSError: If the file can't be written.
    """
    _replace(path, os.fspath(path), text)


def copy_to_new(path: str, new: str) -> None:
    """Copies a file to an unused name, which isn't even a symbolic link.

    Args:
      path: the file.
      new: path of the copy.

    Raises:
      OSError: If the file can't be copied.
    """
    with open(path, "rb") as source, open(new, "xb") as copy:
        shutil.copyfileobj(source, copy)


def replace_link(path: str) -> None:
    """Replaces a symbolic link with a copy of its target, or removes it if it has none.

    Args:
      path: path of the link. Other files remain.

    Raises:
      OSError: If the file can't be copied.
    """
    if not os.path.islink(path):
        return
    if not os.path.exists(path):
        os.unlink(path)
        return
    name = _temporary_name(path)
    try:
        copy_to_new(path, name)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def delete_tree(path: str) -> None:
    """Deletes a local directory with all its contents. Only the links themselves are deleted, not their targets.

    Args:
      path: the directory, or a file.

    Raises:
      OSError: If something can't be deleted.
    """
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def files_of_checkpoint(prefix: str | bytes, also: str = "") -> list[str]:
    """Lists the local files of a checkpoint, and its `.meta` file.

    Args:
      prefix: path of the checkpoint without the suffixes of its files, or the pattern of the files for a sharded one in
        the first format.
      also: regular expression for more suffixes.

    Raises:
      OSError: If the directory can't be listed.
    """
    directory, name = os.path.split(_V1_SHARDS.sub("", os.fsdecode(prefix)))
    is_part = re.compile(re.escape(name) + (f"(?:{_SUFFIX}|{also})" if also else _SUFFIX)).fullmatch
    with os.scandir(directory or ".") as entries:
        return [os.path.join(directory, entry.name) for entry in entries if is_part(entry.name)]


def fsync_checkpoint(prefix: str | bytes) -> bool:
    """Flushes the files of a checkpoint, and the names in their directory, to the disk.

    Does nothing for files that aren't local.

    Args:
      prefix: path of the checkpoint, as for `files_of_checkpoint`.

    Returns:
      True if there are any files other than the `.meta` file.

    Raises:
      OSError: If the disk failed.
    """
    directory = os.path.dirname(os.fsdecode(prefix)) or "."
    try:
        names = files_of_checkpoint(prefix)
    except (FileNotFoundError, NotADirectoryError):
        return False  # The checkpoint is on a file system that isn't local.
    for name in names:
        try:
            _fsync(name)
        except FileNotFoundError:  # noqa: PERF203
            # A symbolic link without a target has no content.
            if not os.path.islink(name):
                raise
    fsync_directory(directory)
    return any(not name.endswith(".meta") for name in names)


def fsync_tree(path: str | bytes) -> None:
    """Flushes all files in a local directory and below it, and their names, to the disk.

    Args:
      path: the directory.

    Raises:
      OSError: If the disk failed, or a directory can't be listed.
    """
    for directory, _, names in os.walk(os.fsdecode(path), onerror=_raise):
        for name in names:
            _fsync(os.path.join(directory, name))
        _fsync(directory)


def _raise(error: OSError) -> None:
    raise error


def fsync_directory(path: str) -> None:
    """Flushes the names in a local directory to the disk.

    Args:
      path: the directory.

    Raises:
      OSError: If the disk failed.
    """
    _fsync(path or ".")


def fsync_directory_and_above(path: str) -> None:
    """Flushes the names in a local directory, and the names of this directory and those above it.

    For directories that may be new. Until its name is flushed, a directory may be lost after a loss of power, with all
    its flushed contents. Other file systems above it aren't flushed, because their directories already existed.

    Args:
      path: the directory.

    Raises:
      OSError: If the disk failed.
    """
    directory = os.path.realpath(path)
    device = os.stat(directory).st_dev
    _fsync(directory)
    while (above := os.path.dirname(directory)) != directory and os.stat(above).st_dev == device:
        directory = above
        # This process didn't create a directory that it may not read.
        with contextlib.suppress(PermissionError):
            _fsync(directory)


def _fsync(path: str) -> None:
    # A pipe with that name would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_FSYNC:
            raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(descriptor)


def _replace(path: str | os.PathLike[str], target: str, text: str) -> None:
    """Replaces `target` with a new file. Errors name `path`."""
    descriptor, name = _new_temporary(path, target)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        _take_permissions(name, target)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
    fsync_directory(os.path.dirname(target))


def _temporary_name(path: str) -> str:
    return os.path.join(os.path.dirname(path), f".fastsup-{secrets.token_hex(8)}")


def _new_temporary(path: str | os.PathLike[str], target: str) -> tuple[int, str]:
    """Creates an empty file in the folder of `target`. Returns its descriptor and name. Errors name `path`."""
    if not os.fspath(path):
        raise FileNotFoundError("the path is empty.")
    if os.path.isdir(target) and not os.path.islink(target):
        raise IsADirectoryError(f"{os.fspath(path)} is a directory.")
    name = _temporary_name(target)
    try:
        # O_EXCL requires an unused name, which isn't even the name of a link.
        return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666), name
    except OSError as error:
        raise type(error)(error.errno, error.strerror, os.fspath(path)) from None


def _take_permissions(name: str, path: str) -> None:
    """Gives a new file the permissions of the file that it replaces, if it replaces one."""
    with contextlib.suppress(FileNotFoundError):
        status = os.lstat(path)
        if stat.S_ISREG(status.st_mode):
            os.chmod(name, stat.S_IMODE(status.st_mode))


def _is_special(path: str | os.PathLike[str]) -> bool:
    """Returns True for a device, a pipe or a similar file, which a file must not replace."""
    if os.path.isdir(path):
        return False
    directory = os.path.realpath(os.path.dirname(os.path.abspath(path)))
    if directory == "/dev" or f"{directory}/".startswith("/proc/"):
        return True  # /dev/stdout may be a regular file. Files in /dev/shm are ordinary files.
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False
