"""Two trainings that save in one directory notice each other.

Each overwrites the state file, and the checkpoints of the same steps, and deletes its own. So before a training
replaces a state file, it checks whether another process has replaced the file since this process wrote or read it. A
comment in the file, which parsers of the format skip, names the process that has written it. This needs no lock: a
process that was killed doesn't save again, and a restart reads the state file first.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import time
from typing import Any, NamedTuple

from tensorflow.python.framework import errors
from tensorflow.python.lib.io import file_io
from tensorflow.python.platform import tf_logging as logging

from fastsup.common.file_system import is_local

__all__ = ["note_state", "signed", "warn_of_other_writer"]

_COMMENT = re.compile(r"^# Saved by (?P<who>process \d+ .*), id (?P<id>[0-9a-f]{16})$", re.MULTILINE)


class _State(NamedTuple):
    """A state file as this process has written or read it."""

    identity: tuple[int, int, int] | None
    text: str


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


def signed(text: str) -> str:
    """Adds this process's comment to the text of a state file. It is the second line: scripts read the first or last.

    Args:
      text: the text of the protocol buffer.
    """
    # A name of spaces or control characters would break the line.
    host = re.sub(r"[^\w.:-]", "_", socket.gethostname())
    process = _this_process()
    comment = f"# Saved by process {process.pid} on {host}, running since {process.since}, id {process.id}"
    first, _, rest = text.partition("\n")
    return f"{first}\n{comment}\n{rest}"


def note_state(path: str, text: str | None = None) -> None:
    """Remembers a state file as it is: this process has written it, or goes on from what it names.

    Args:
      path: path of the state file, which need not exist.
      text: its text; None to read it.
    """
    # Before the text: what replaces the file in between is noticed.
    identity = _identity(path)
    _this_process().known[_key(path)] = _State(identity, _read(path) if text is None else text)


def warn_of_other_writer(path: str) -> None:
    """Warns if another process has replaced a state file since `note_state`, once for each such process.

    Args:
      path: path of the state file, which is about to be replaced.
    """
    process = _this_process()
    known = process.known.get(_key(path))
    if known is None or (known.identity is not None and known.identity == _identity(path)):
        return
    text = _read(path)
    found = _COMMENT.search(text)
    if found is None or text == known.text or found["id"] == process.id:
        return
    about = _key(path), found["id"]
    if about not in process.warned:
        process.warned.add(about)
        logging.warning(
            "%s was replaced by another training: %s has saved there since this one, process %d, wrote or read it. "
            "Each overwrites the checkpoints of the other, and a restart restores the work of one. End one of them, or "
            "give each another directory. See `python -m fastsup docs saving#two-trainings-in-one-directory`.",
            path,
            found["who"],
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


def _read(path: str) -> str:
    """The text of a file; an empty one if it can't be read: a restore or the save itself reports why."""
    # A pipe of that name would wait for a writer.
    if is_local(path) and not os.path.isfile(path):
        return ""
    try:
        content: Any = file_io.read_file_to_string(path, binary_mode=True)
    except errors.OpError:
        return ""
    return bytes(content).decode("utf-8", "replace")
