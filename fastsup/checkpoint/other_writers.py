"""Two trainings that save in one directory notice each other.

Each overwrites the state file, and the checkpoints of the same steps, and deletes its own. So before a training
replaces a state file, it checks whether another process has replaced the file since this process wrote or read it. An
extended attribute of the file names the process that has written it: the content stays TensorFlow's, which programs
read line by line. This needs no lock: a process that was killed doesn't save again, and a restart reads the state file
first. A file system without such attributes gives no warning.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from typing import NamedTuple

from tensorflow.python.platform import tf_logging as logging

from fastsup.common.file_system import is_local

__all__ = ["note_state", "sign", "warn_of_other_writer"]

_ATTRIBUTE = "user.fastsup.writer"


class _State(NamedTuple):
    """A state file as this process has written or read it."""

    identity: tuple[int, int, int] | None
    writer: str


class _Process:
    """This process, and what it knows of state files: all its sessions and loops are one writer."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.id = secrets.token_hex(8)
        self.since = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        self.known: dict[str, _State] = {}
        self.warned: set[tuple[str, str]] = set()


_process = _Process()


def _this_process() -> _Process:
    global _process
    if _process.pid != os.getpid():  # This is a fork.
        _process = _Process()
    return _process


def sign(path: str) -> None:
    """Notes in a state file that this process has written it, and remembers the file.

    Args:
      path: path of the state file.
    """
    process = _this_process()
    if is_local(path) and hasattr(os, "setxattr"):
        about = f"process {process.pid} on {socket.gethostname()}, running since {process.since}"
        # The number tells two saves of one process apart.
        writer = f"{about}, id {process.id}, save {secrets.token_hex(8)}"
        with contextlib.suppress(OSError):
            os.setxattr(path, _ATTRIBUTE, writer.encode(errors="replace"), follow_symlinks=False)
    note_state(path)


def note_state(path: str) -> None:
    """Remembers a state file as it is: this process has written it, or goes on from what it names.

    Args:
      path: path of the state file, which need not exist.
    """
    # Before the writer: what replaces the file in between is noticed.
    identity = _identity(path)
    _this_process().known[_key(path)] = _State(identity, _writer(path))


def warn_of_other_writer(path: str) -> None:
    """Warns if another process has replaced a state file since `note_state`, once for each such process.

    Args:
      path: path of the state file, which is about to be replaced.
    """
    process = _this_process()
    known = process.known.get(_key(path))
    if known is None or known.identity == _identity(path):
        return
    writer = _writer(path)
    who, _, identifier = writer.partition(", save ")[0].rpartition(", id ")
    about = _key(path), identifier
    if writer in ("", known.writer) or identifier == process.id or about in process.warned:
        return
    process.warned.add(about)
    logging.warning(
        "%s was replaced by another training: %s has saved there since this one, process %d, wrote or read it. "
        "Each overwrites the checkpoints of the other, and a restart restores the work of one. End one of them, or "
        "give each another directory. See `python -m fastsup docs saving#two-trainings-in-one-directory`.",
        path,
        who,
        process.pid,
    )


def _key(path: str) -> str:
    if not is_local(path):
        return path
    directory, name = os.path.split(path)
    return os.path.join(os.path.realpath(directory), name)


def _identity(path: str) -> tuple[int, int, int] | None:
    """What tells whether a local file was replaced or written to; None if that isn't known."""
    if not is_local(path):
        return None
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _writer(path: str) -> str:
    """What `sign` has noted in a file; an empty string for nothing."""
    if not is_local(path) or not hasattr(os, "getxattr"):
        return ""
    try:
        return os.getxattr(path, _ATTRIBUTE, follow_symlinks=False).decode(errors="replace")
    except OSError:
        return ""
