"""Files that may be on a file system other than the local one, such as "gs://bucket/file".

A file system query has three results: yes, no, and an error, which means neither. For an error of the local file
system, TensorFlow's `file_exists` and `is_directory` also return False.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

from tensorflow.python.framework import errors
from tensorflow.python.lib.io import file_io

from fastsup.common import files

__all__ = ["delete_tree", "exists", "is_local", "list_names", "tensorflow_errors", "write_whole"]

# TensorFlow's error for an errno, as in its own file systems (tsl/platform/errors.cc), except that EFBIG, EOVERFLOW and
# ERANGE aren't the end of an input.
_KINDS = {
    errors.PermissionDeniedError: "EPERM EACCES EROFS",
    errors.ResourceExhaustedError: "ENOSPC EDQUOT EMFILE EMLINK ENFILE ENOBUFS ENOMEM EFBIG EOVERFLOW ERANGE",
    errors.NotFoundError: "ENOENT ENODEV ENXIO",
    errors.FailedPreconditionError: "EISDIR ENOTDIR ENOTEMPTY EBADF EBUSY ETXTBSY",
    errors.InvalidArgumentError: "EINVAL ENAMETOOLONG",
    errors.AlreadyExistsError: "EEXIST",
    errors.DeadlineExceededError: "ETIMEDOUT ETIME",
    errors.UnavailableError: "EAGAIN EINTR ECONNREFUSED ECONNABORTED ECONNRESET EHOSTDOWN EHOSTUNREACH ENETDOWN "
    "ENETRESET ENETUNREACH ENOLCK ENOLINK",
    errors.AbortedError: "EDEADLK ESTALE",
}
_KIND_OF = {getattr(errno, name, None): kind for kind, names in _KINDS.items() for name in names.split()}
_ABSENT = (errno.ENOENT, errno.ENOTDIR)


def is_local(path: str | bytes | os.PathLike[str]) -> bool:
    """Returns True if a path has no scheme, such as "gs://".

    Args:
      path: the path.
    """
    return "://" not in os.fsdecode(path)


def exists(path: str) -> bool:
    """Returns True if a file or a directory exists.

    Args:
      path: the path, local or with a scheme.

    Raises:
      tf.errors.OpError: If the file system doesn't answer the query.
    """
    if not is_local(path):
        try:
            file_io.stat_v2(path)
        except errors.NotFoundError:
            return False
        return True
    with tensorflow_errors("looked up", path):
        try:
            os.stat(path)
        except OSError as error:
            if error.errno in _ABSENT:
                return False
            raise
    return True


def list_names(directory: str) -> list[str]:
    """Lists the names in a directory, without those in subdirectories. A missing directory has no names.

    Args:
      directory: the path, local or with a scheme.

    Raises:
      tf.errors.OpError: If the directory can't be listed.
    """
    if not is_local(directory):
        # is_directory() returns False also after an error, so exists() must confirm it.
        if not file_io.is_directory_v2(directory) and not exists(directory):
            return []
        return [name.rstrip("/") for name in file_io.list_directory_v2(directory)]
    with tensorflow_errors("listed", directory):
        try:
            return os.listdir(directory or ".")
        except OSError as error:
            if error.errno in _ABSENT:
                return []
            raise


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Writes a file so that it contains either all of the new content or, after an error, the old content.

    Replaces a symbolic link or a pipe with that name, as TensorFlow does.

    Args:
      path: the file's path, local or with a scheme. Its directory must exist. With a scheme, TensorFlow writes the file
        under another name and renames it.
      text: the file's new content, which is written in UTF-8.

    Raises:
      tf.errors.OpError: If the file can't be written.
    """
    if not is_local(path):
        file_io.atomic_write_string_to_file(os.fspath(path), text)
        return
    with tensorflow_errors("written", os.fspath(path)):
        files.replace_whole(path, text)


def delete_tree(path: str) -> None:
    """Deletes a directory with all its contents. TensorFlow would also delete a symbolic link's target.

    Args:
      path: the path, local or with a scheme.

    Raises:
      tf.errors.OpError: If something can't be deleted.
    """
    if not is_local(path):
        file_io.delete_recursively_v2(path)
        return
    with tensorflow_errors("deleted"):
        files.delete_tree(path)


@contextlib.contextmanager
def tensorflow_errors(done: str, path: str | None = None) -> Iterator[None]:
    """Raises an error of the operating system as the corresponding TensorFlow error.

    Args:
      done: the attempted action, as a participle: "written".
      path: the path to name. If None, uses the error's path.

    Raises:
      tf.errors.OpError: If the wrapped code raised an OSError.
    """
    try:
        yield
    except OSError as error:
        kind = _KIND_OF.get(error.errno or -1, errors.UnknownError)
        text = error.strerror or str(error)
        raise kind(None, None, f"{path or error.filename} can't be {done}; {text}") from None
