"""A model of a disk that loses power: what a directory may contain after a crash at any point of a log of operations.

POSIX promises of a file's content only what was flushed by `fsync`, and of a name only what was there when its
directory was flushed. What wasn't may be there or not, in any order: the model takes each prefix of the operations on
names, each one alone, and all but each one; and of content that wasn't flushed all of it, half of it, and none. As in
ALICE (Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014).

A file system with a journal promises more: changes of names get to the disk in their order, and a flush of any file
takes all earlier ones along. `ordered=True` is such a file system.
"""

from __future__ import annotations

import collections
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

__all__ = ["Crash", "Operation", "contents", "crashes", "operations_in"]

# What a crash leaves of content that wasn't flushed.
ALL, HALF, NONE = range(3)


class _File:
    """A file: its content, and what of it is on the disk."""

    def __init__(self, at: int = 0) -> None:
        self.content = self.flushed = b""
        self.changed = at
        self._half = b""

    def set_content(self, content: bytes, at: int) -> None:
        """Replaces the content, in memory, in the operation of that number."""
        self.content = content
        self.changed = at
        self._half = content[: len(content) // 2]

    def after(self, left: int) -> bytes:
        """Its content after a crash."""
        if self.content == self.flushed or left == ALL:
            return self.content
        # Half of the new content may have got there, or none: then the old one is there, or the file is empty.
        return self._half if left == HALF else self.flushed


class _Directory:
    """A directory: what has a name in it, and what of that is on the disk."""

    def __init__(self) -> None:
        self.names: dict[str, _Node] = {}
        self.on_disk: dict[str, _Node] = {}


_Node = _File | _Directory


class _Change(NamedTuple):
    """A change of names: in `directory`, `name` becomes that of `node`. Without a node, the name goes.

    With `source`, the directory and the name that a rename takes away, at the same time.
    """

    directory: _Directory
    name: str
    node: _Node | None
    source: tuple[_Directory, str] | None = None


class Operation(NamedTuple):
    """A line of the shim's log, with paths relative to the watched directory.

    Attributes:
      name: the operation; "failed" for one that has failed.
      path: the file.
      second: the new name of a rename; of a file that is flushed or closed, the number of a copy of its content; or "".
    """

    name: str
    path: str
    second: str


def operations_in(log: Path, folder: Path) -> list[Operation]:
    """Reads the shim's log. Event files are left out: nothing is restored from them.

    Args:
      log: the log.
      folder: the watched directory.
    """
    lines = (line.replace(f"{folder}/", "").split("\t") for line in log.read_text().splitlines())
    return [Operation(*parts) for parts in lines if "tfevents" not in parts[1]]


class Crash(NamedTuple):
    """What may be there after a crash.

    Attributes:
      files: content by path; those that were changed last come last.
      folders: paths of the directories, parents first.
      at: number of operations before it.
      saved: the last step whose save had returned; 0 if none had.
    """

    files: dict[str, bytes]
    folders: list[str]
    at: int
    saved: int


class _Disk:
    """Names and files, on the disk and not yet.

    Args:
      folders: paths of directories that are there at the start, parents first.
      ordered: whether names get to the disk in the order of their changes.
    """

    def __init__(self, folders: Iterable[str], ordered: bool) -> None:
        self.root = _Directory()
        self._ordered = ordered
        self._pending: list[_Change] = []
        for path in folders:
            self.add(path, _Directory())
        self.flush_all()

    def _place(self, path: str) -> tuple[_Directory, str] | None:
        """The directory of a path, and the name in it. None if the directory isn't known."""
        parent, name = os.path.split(path)
        directory = self.find(parent)
        return (directory, name) if isinstance(directory, _Directory) else None

    def find(self, path: str) -> _Node | None:
        """What has a path."""
        node: _Node | None = self.root
        for name in filter(None, path.split("/")):
            node = node.names.get(name) if isinstance(node, _Directory) else None
        return node

    def _change(self, change: _Change) -> None:
        _apply(change, lambda directory: directory.names)
        self._pending.append(change)

    def add(self, path: str, node: _Node) -> None:
        """Gives a node a name, which isn't on the disk yet."""
        if place := self._place(path):
            self._change(_Change(*place, node))

    def remove(self, path: str) -> None:
        """Removes a name."""
        if self.find(path) is not None and (place := self._place(path)):
            self._change(_Change(*place, None))

    def rename(self, path: str, new: str) -> None:
        """Renames what has a path."""
        node, source, place = self.find(path), self._place(path), self._place(new)
        if node is not None and source and place:
            self._change(_Change(*place, node, source))

    def flush(self, node: _Node) -> None:
        """Flushes a file, or the names in a directory."""
        if isinstance(node, _File):
            node.flushed = node.content
        for change in self._pending:
            if self._ordered or change.directory is node:
                _apply(change, lambda directory: directory.on_disk)
        self._pending = [] if self._ordered else [each for each in self._pending if each.directory is not node]

    def flush_all(self) -> None:
        """Flushes everything."""
        for change in self._pending:
            _apply(change, lambda directory: directory.on_disk)
        self._pending = []
        for _, node in _paths(self.root, lambda directory: directory.names):
            if isinstance(node, _File):
                node.flushed = node.content

    def after_a_crash(self) -> Iterator[tuple[dict[str, bytes], list[str]]]:
        """The files and directories that may be there after a crash now."""
        pending = self._pending
        n = len(pending)
        kept = [pending[:i] for i in range(n, -1, -1)]
        if not self._ordered:
            kept += [[change] for change in pending]
            kept += [pending[:i] + pending[i + 1 :] for i in range(n)]
        for changes in kept:
            changed: dict[_Directory, dict[str, _Node]] = {}

            def names_of(directory: _Directory, changed: dict[_Directory, dict[str, _Node]] = changed) -> _Names:
                return changed.get(directory, directory.on_disk)

            for change in changes:
                for directory in {change.directory, *(change.source or ())[:1]}:
                    changed.setdefault(directory, dict(directory.on_disk))
                _apply(change, names_of)
            nodes = list(_paths(self.root, names_of))
            folders = [path for path, node in nodes if isinstance(node, _Directory)]
            files = [(path, node) for path, node in nodes if isinstance(node, _File)]
            files.sort(key=lambda each: each[1].changed)
            for left in (ALL, HALF, NONE):
                yield {path: file.after(left) for path, file in files}, folders


_Names = dict[str, _Node]


def _apply(change: _Change, names_of: Callable[[_Directory], _Names]) -> None:
    """Makes a change in the names that `names_of` gives of a directory."""
    if change.source:
        directory, name = change.source
        names_of(directory).pop(name, None)
    if change.node is None:
        names_of(change.directory).pop(change.name, None)
    else:
        names_of(change.directory)[change.name] = change.node


def _paths(
    directory: _Directory, names_of: Callable[[_Directory], _Names], prefix: str = ""
) -> Iterator[tuple[str, _Node]]:
    """Everything below a directory, with its path; parents first."""
    for name, node in names_of(directory).items():
        yield prefix + name, node
        if isinstance(node, _Directory):
            yield from _paths(node, names_of, f"{prefix}{name}/")


def crashes(
    operations: Iterable[tuple[str, str, str]],
    blobs: Mapping[str, bytes],
    folder: str,
    *,
    folders: Iterable[str] = (),
    ordered: bool = False,
) -> Iterator[Crash]:
    """What may be there after a crash at each point of a log. What is the same as before is left out.

    Args:
      operations: name, path, and second path or number of a copy, as the shim has logged them. The programs add
        "returned", with a step whose save has returned, and "rested": the next operation comes a minute later.
      blobs: the copies by number.
      folder: the directory, as the log names it; paths of files are relative to it.
      folders: directories in it that are there at the start, parents first.
      ordered: whether the names get to the disk in the order of their changes, a flush of any file writes all earlier
        names, and the system has written everything that is older than a minute.
    """
    seen: set[int] = set()
    for number, saved, disk in _replayed(operations, blobs, folder, folders, ordered):
        for files, directories in disk.after_a_crash():
            # The hash alone: the contents of all states would fill the memory.
            key = hash((saved, frozenset(files.items()), frozenset(directories)))
            if key not in seen:
                seen.add(key)
                yield Crash(files, directories, number, saved)


def contents(
    operations: Iterable[tuple[str, str, str]], blobs: Mapping[str, bytes], folder: str, folders: Iterable[str] = ()
) -> dict[str, bytes]:
    """The files at the end of a log if nothing is lost: those that are there, if the log has all operations.

    Args:
      operations, blobs, folder, folders: as in `crashes`.
    """
    last = collections.deque(_replayed(operations, blobs, folder, folders, ordered=False), maxlen=1)
    return next(last[0][2].after_a_crash())[0] if last else {}


def _replayed(
    operations: Iterable[tuple[str, str, str]],
    blobs: Mapping[str, bytes],
    folder: str,
    folders: Iterable[str],
    ordered: bool,
) -> Iterator[tuple[int, int, _Disk]]:
    """The disk after each operation, with the operation's number and the last step whose save had returned."""
    disk = _Disk(folders, ordered)
    saved = 0
    for number, (name, path, second) in enumerate(operations, 1):
        node = disk.find("" if path == folder else path)
        if name == "returned":
            saved = int(path)
        elif name == "rested" and ordered:
            disk.flush_all()
        elif name == "create" and node is None:
            disk.add(path, _File(number))
        elif name == "create" and isinstance(node, _File) and second != "kept":
            node.set_content(b"", number)
        elif name in ("fsync", "close") and node is not None:
            if isinstance(node, _File) and second in blobs:
                node.set_content(blobs[second], number)
            if name == "fsync":
                disk.flush(node)
        elif name == "mkdir":
            disk.add(path, _Directory())
        elif name == "rename":
            disk.rename(path, second)
        elif name == "link" and node is not None:
            disk.add(second, node)
        elif name in ("unlink", "rmdir"):
            disk.remove(path)
        else:
            continue
        yield number, saved, disk
