"""A model of a disk that loses power: what a directory may contain after a crash at any point of a log of operations.

POSIX promises of a file's content only what was flushed by `fsync`, and of a name only what was there when its
directory was flushed. What wasn't may be there or not, in any order: the model takes each prefix of the operations on
names, each one alone, and all but each one; and of content that wasn't flushed all of it, half of it, and none. As in
ALICE (Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

__all__ = ["Crash", "crashes"]

# What a crash leaves of content that wasn't flushed.
ALL, HALF, NONE = range(3)


class _File:
    """A file: its content, and what of it is on the disk."""

    def __init__(self) -> None:
        self.content = self.flushed = b""

    def after(self, left: int) -> bytes:
        """Its content after a crash."""
        if self.content == self.flushed or left == ALL:
            return self.content
        # Half of the new content may have got there, or none: then the old one is there, or the file is empty.
        return self.content[: len(self.content) // 2] if left == HALF else self.flushed


class _Change(NamedTuple):
    """A change of names: `path` is the name of `file`; with `before`, what had that name, or was in that directory,
    has `path` in its place. Without either, `path` goes."""

    path: str
    file: _File | None = None
    before: str = ""


class Crash(NamedTuple):
    """What may be there after a crash.

    Attributes:
      files: content by path.
      at: number of operations before it.
      saved: the last step whose save had returned; 0 if none had.
    """

    files: dict[str, bytes]
    at: int
    saved: int


class _Disk:
    """Names and files, on the disk and not yet."""

    def __init__(self) -> None:
        self.names: dict[str, _File] = {}
        self.on_disk: dict[str, _File] = {}
        self.pending: list[_Change] = []

    def change(self, change: _Change) -> None:
        """Changes a name, which isn't on the disk yet."""
        self.names = _changed(self.names, [change])
        self.pending.append(change)

    def flush_names(self, directory: str) -> None:
        """Flushes a directory."""
        flushed = [change for change in self.pending if os.path.dirname(change.path) == directory]
        self.on_disk = _changed(self.on_disk, flushed)
        self.pending = [change for change in self.pending if change not in flushed]

    def after_a_crash(self) -> Iterator[dict[str, bytes]]:
        """What may be there after a crash now."""
        n = len(self.pending)
        kept = [self.pending[:i] for i in range(n + 1)]
        kept += [[change] for change in self.pending]
        kept += [self.pending[:i] + self.pending[i + 1 :] for i in range(n)]
        for changes in kept:
            names = _changed(self.on_disk, changes)
            for left in (ALL, HALF, NONE):
                yield {path: file.after(left) for path, file in names.items()}


def _changed(names: Mapping[str, _File], changes: Iterable[_Change]) -> dict[str, _File]:
    changed = dict(names)
    for path, file, before in changes:
        if before:
            changed.pop(before, None)
            for name in [name for name in changed if name.startswith(before + "/")]:
                changed[path + name[len(before) :]] = changed.pop(name)
        if file is not None:
            changed[path] = file
        elif not before:
            changed.pop(path, None)
    return changed


def crashes(operations: Iterable[tuple[str, str, str]], blobs: Mapping[str, bytes], folder: str) -> Iterator[Crash]:
    """What may be there after a crash at each point of a log. What is the same as before is left out.

    Args:
      operations: name, path, and second path or number of a copy, as the shim has logged them.
      blobs: the copies by number.
      folder: the directory, as the log names it; paths of files are relative to it.
    """
    disk = _Disk()
    seen: set[tuple[int, frozenset[tuple[str, bytes]]]] = set()
    saved = 0
    for number, (name, path, second) in enumerate(operations, 1):
        file = disk.names.get(path)
        if name == "returned":
            saved = int(path)
        elif name == "create" and file is None:
            disk.change(_Change(path, _File()))
        elif name == "create" and file is not None:
            file.content = b""
        elif name == "fsync" and file is None:
            disk.flush_names("" if path == folder else path)
        elif name in ("fsync", "close") and file is not None:
            file.content = blobs.get(second, file.content)
            if name == "fsync":
                file.flushed = file.content
        elif name == "rename":
            disk.change(_Change(second, file, path))
        elif name == "link" and file is not None:
            disk.change(_Change(second, file))
        elif name == "unlink":
            disk.change(_Change(path))
        else:
            continue
        for files in disk.after_a_crash():
            key = (saved, frozenset(files.items()))
            if key not in seen:
                seen.add(key)
                yield Crash(files, number, saved)
