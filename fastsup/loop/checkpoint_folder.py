"""A directory of checkpoints. Each checkpoint is a folder with checksums, and is either complete or absent.

A checkpoint is written to a folder with a temporary name, and flushed to the disk. The folder is then renamed, and the
rename is flushed. Only then are older checkpoints deleted; each is renamed before its files are deleted. So whenever
the process or the machine stops, each folder with a checkpoint's name is complete. No folder is ever written twice: a
second save of the same step gets another name.

A process that writes a folder holds a lock on it, and the lock ends with the process. An entry with a temporary name
and no lock belongs to a process that has ended, and is deleted.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import logging
import os
import re
import secrets
import socket
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from fastsup.common.errors import is_read_failure
from fastsup.common.files import (
    delete_tree,
    fsync_directory,
    fsync_directory_and_above,
    fsync_tree,
    make_checkpoint_directory,
    naming,
)

__all__ = ["CheckpointFolder", "DamagedError", "NewCheckpoint", "SavedCheckpoint", "described"]

_logger = logging.getLogger("fastsup")

_NAME = re.compile(r"save-(\d+)-step-(\d+)")
_SAVING, _DELETING = ".saving-", ".deleting-"
_CONTENT, _CHECKSUMS = "checkpoint.json", "SHA256SUMS"
_FORMAT = 1
_BLOCK = 1 << 20


class DamagedError(Exception):
    """A checkpoint differs from the written data."""


class SavedCheckpoint(NamedTuple):
    """A checkpoint in a directory.

    Attributes:
      path: its folder.
      global_step: the global step at which it was saved.
      metrics: dictionary of an evaluation's numbers at that step, by name; empty without an evaluation.
      number: number of the save in the directory. The newest checkpoint has the largest number.
    """

    path: str
    global_step: int
    metrics: dict[str, float]
    number: int


class NewCheckpoint:
    """A checkpoint that is being written.

    Args:
      path: the folder for its files.

    Attributes:
      path: the argument; after the last write, the checkpoint's folder.
      content: the dictionary that becomes the JSON text. The writer sets `global_step` and `metrics`.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.content: dict[str, Any] = {"format": _FORMAT, "time": time.time(), "writer": _writer()}
        self._sums: dict[str, str] = {}

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[Any]:
        """Yields a new file, whose `write` takes bytes."""
        path = os.path.join(self.path, name)
        with naming(path), open(path, "xb") as file:
            summed = _SummedFile(file)
            yield summed
        # The checksum covers the intended data, so that the data on disk is compared with it.
        if os.stat(path).st_size != summed.size:
            raise OSError(errno.EIO, "The file's size differs from the number of bytes written", path)
        self._sums[name] = summed.sum.hexdigest()

    def finish(self) -> None:
        """Writes the JSON text, and the checksums of all files."""
        names = os.listdir(self.path)
        self._sums.update({name: _checksum(os.path.join(self.path, name)) for name in names if name not in self._sums})
        self.content["files"] = sorted(names)
        with self.create(_CONTENT) as file:
            file.write(json.dumps(self.content).encode())
        lines = [f"{found}  {name}\n" for name, found in sorted(self._sums.items())]
        with self.create(_CHECKSUMS) as file:
            file.write("".join(lines).encode())


class _SummedFile:
    """Writes to a file, and computes the checksum of the written data. The file has no position, so writers can
    only append."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.sum = hashlib.sha256()
        self.size = 0

    def write(self, data: Any) -> int:
        """Writes bytes. Returns their number."""
        size = memoryview(data).nbytes
        self._file.write(data)
        self.sum.update(data)
        self.size += size
        return size

    def flush(self) -> None:
        """Passes the written data to the operating system."""
        self._file.flush()


class CheckpointFolder:
    """A directory of checkpoints.

    Args:
      directory: its path. It need not exist.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        # The numbers of the checkpoints that existed when this object last saved, or was opened.
        self._seen: set[int] = set()
        self._warned: set[str] = set()
        self._is_made = False

    def open(self) -> None:
        """Creates the directory, and deletes the remains of interrupted saves and deletions.

        Raises:
          OSError: If the directory can't be created or written to.
        """
        directory = make_checkpoint_directory(self.directory)
        for name in os.listdir(directory):
            if name.startswith((_SAVING, _DELETING)):
                _delete_unlocked(os.path.join(directory, name))
        self._seen = {number for number, _ in self.paths()}

    def paths(self) -> list[tuple[int, str]]:
        """Returns the number and the folder of each checkpoint, newest first. Reads none."""
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError:
            names = []
        matches = filter(None, map(_NAME.fullmatch, names))
        found = [(int(match[1]), os.path.join(self.directory, match[0])) for match in matches]
        return sorted(found, reverse=True)

    def read(self, path: str) -> dict[str, Any]:
        """Checks all files of a checkpoint, and returns the content of its JSON text.

        Raises:
          DamagedError: If the checkpoint differs from the written data.
          ValueError: If a newer version of fastsup wrote it.
          OSError: If the checkpoint can't currently be read, or not by this user.
        """
        try:
            sums = _read_checksums(path)
            for name, expected in sums.items():
                if _checksum(os.path.join(path, name)) != expected:
                    raise DamagedError(f"{name} has changed since it was written: its checksum differs")
            with open(os.path.join(path, _CONTENT), encoding="utf-8") as file:
                content: dict[str, Any] = json.load(file)
            missing = {*content["files"], _CONTENT} - sums.keys()
            if missing:
                raise DamagedError(f"{_CHECKSUMS} lacks {', '.join(sorted(missing))}")
        except OSError as error:
            if is_read_failure(error):
                raise
            raise DamagedError(f"{os.path.basename(str(error.filename or ''))}: {error.strerror}") from error
        except (ValueError, LookupError) as error:
            raise DamagedError(f"{_CONTENT} can't be read: {error}") from error
        if content["format"] > _FORMAT:
            raise ValueError(f"{path} was written by a newer version of fastsup. Use that version.")
        return content

    def describe(self, path: str) -> SavedCheckpoint | None:
        """Returns the contents of a checkpoint's JSON file; None if it can't be read. Checks no other file."""
        try:
            with open(os.path.join(path, _CONTENT), encoding="utf-8") as file:
                return described(path, json.load(file))
        except (OSError, ValueError, LookupError, TypeError):
            return None

    @contextlib.contextmanager
    def writing(self) -> Iterator[NewCheckpoint]:
        """Returns a context manager for writing a checkpoint. The folder gets its name at the end of the block."""
        folder, lock = self._new_folder()
        try:
            new = NewCheckpoint(folder)
            yield new
            new.finish()
            fsync_tree(folder)
            new.path = self._name(folder, new.content["global_step"])
        except BaseException:
            with contextlib.suppress(OSError):
                delete_tree(folder)
            raise
        finally:
            os.close(lock)
        if self._is_made:
            fsync_directory(self.directory)
        else:
            fsync_directory_and_above(self.directory)
            self._is_made = True

    def delete(self, path: str) -> None:
        """Deletes a checkpoint. If it is a link, deletes only the link. Logs files that can't be deleted."""
        hidden = os.path.join(self.directory, f"{_DELETING}{secrets.token_hex(8)}")
        try:
            if os.path.islink(path):
                os.unlink(path)
                return
            os.rename(path, hidden)
            delete_tree(hidden)
        except FileNotFoundError:
            return  # The program deleted the folder.
        except OSError as error:
            _logger.warning("The old checkpoint %s can't be deleted: %s", path, error)

    def _new_folder(self) -> tuple[str, int]:
        """Creates a folder and locks it. Returns its path and the descriptor that holds the lock."""
        os.makedirs(self.directory, exist_ok=True)
        while True:
            folder = os.path.join(self.directory, f"{_SAVING}{secrets.token_hex(8)}")
            os.mkdir(folder)
            try:
                lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # Another process deleted the folder when it started.
            # Some file systems have no locks. Other processes then delete nothing there either.
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.exists(folder):
                return folder, lock
            os.close(lock)

    def _name(self, folder: str, step: int) -> str:
        """Gives a written folder its name. Returns its path."""
        found = self.paths()
        self._warn_of_other_writer(found)
        number = max((known for known, _ in found), default=0)
        while True:
            number += 1
            path = os.path.join(self.directory, f"save-{number:06d}-step-{step}")
            if os.path.lexists(path):
                continue
            try:
                os.rename(folder, path)
            except OSError as error:
                # Another process has just used the name.
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise
            else:
                self._seen.add(number)
                return path

    def _warn_of_other_writer(self, found: list[tuple[int, str]]) -> None:
        """Warns once about each other process that saved in this directory since this process started."""
        new = [path for number, path in found if number not in self._seen]
        self._seen = {number for number, _ in found}
        for path in new:
            try:
                with open(os.path.join(path, _CONTENT), encoding="utf-8") as file:
                    writer = str(json.load(file)["writer"])
            except (OSError, ValueError, LookupError, TypeError):
                continue
            if writer not in self._warned and writer != _writer():
                self._warned.add(writer)
                _logger.warning(
                    "Another program has saved in %s since this one started: %s. A restart would restore the newest "
                    "checkpoint of either. Stop one of them, or give each its own directory. See `python -m fastsup "
                    "docs saving#two-trainings-in-one-directory`.",
                    self.directory,
                    writer,
                )


def described(path: str, content: dict[str, Any]) -> SavedCheckpoint:
    """Creates a `SavedCheckpoint` from a path and the content of the JSON text."""
    match = _NAME.fullmatch(os.path.basename(path))
    # A copied folder may have another name.
    return SavedCheckpoint(
        path, int(content["global_step"]), dict(content["metrics"]), 0 if match is None else int(match[1])
    )


_pid, _since = 0, ""


def _writer() -> str:
    """Returns a description of this process."""
    global _pid, _since
    if _pid != os.getpid():
        _pid, _since = os.getpid(), time.strftime("%Y-%m-%dT%H:%M:%S%z")
    return f"process {_pid} on {socket.gethostname()}, saving since {_since}"


def _delete_unlocked(path: str) -> None:
    """Deletes a folder unless a process has locked it."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        _logger.debug("%s stays: %s", path, error)
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        delete_tree(path)
    except OSError as error:
        _logger.debug("%s stays: %s", path, error)
    finally:
        os.close(lock)


def _checksum(path: str) -> str:
    found = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            found.update(block)
    return found.hexdigest()


def _read_checksums(path: str) -> dict[str, str]:
    """Returns the checksums of a checkpoint's files, in the format of `sha256sum`."""
    with open(os.path.join(path, _CHECKSUMS), encoding="utf-8") as file:
        lines = [line.rstrip("\n").partition("  ") for line in file]
    # A checkpoint contains no folders.
    return {name: expected for expected, _, name in lines if os.path.basename(name) == name}
