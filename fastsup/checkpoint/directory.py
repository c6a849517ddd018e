"""The checkpoints of a directory: which there are, in which order they are tried, and whether one can be read."""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

from google.protobuf import text_format
from tensorflow.python.framework import errors
from tensorflow.python.lib.io import file_io
from tensorflow.python.training import py_checkpoint_reader
from tensorflow.python.training.checkpoint_state_pb2 import CheckpointState

__all__ = ["Listing", "damage_of", "is_unfinished", "latest_intact_checkpoint", "list_checkpoints"]

STATE_FILE = "checkpoint"
MISSING = "none of its files exist"

# PREFIX.index and PREFIX.data-00000-of-00001, and what a save that was interrupted leaves of them: files with another
# ending, and a directory for the parts.
_PART = re.compile(r"(?P<prefix>.+?)(?P<index>\.index)?(?:\.data-\d{5}-of-\d{5})?(?P<rest>\.tempstate\d+|_temp\w*)?$")
_NUMBERED = re.compile(r"(?P<stem>.+)-(?P<step>\d+)$")
# The end of an index file. It is written last.
_INDEX_ENDS_WITH = 0xDB4775248B80FB57.to_bytes(8, "little")


class Listing(NamedTuple):
    """What a directory offers for a restore.

    Args:
      paths: the checkpoints in the order in which they are to be tried.
      rotation: those that the state file names and that are in the directory, oldest first: the ones that a saver
        may delete when it has written enough new ones.
      interrupted: what was begun and never had an index, and that no state file names, newest first.
      named: whether the state file names a checkpoint.
      remarks: what is wrong with the state file, a sentence each.
    """

    paths: list[str]
    rotation: list[str]
    interrupted: list[str]
    named: bool
    remarks: list[str]


class _Directory:
    """The names in a directory, and what they say about checkpoints."""

    def __init__(self, path: str) -> None:
        self.path = path
        names = file_io.list_directory_v2(path) if file_io.is_directory(path) else []
        self._names = {name.rstrip("/") for name in names}
        self.with_index: set[str] = set()
        self.begun: set[str] = set()
        for name in self._names:
            match = _PART.match(name)
            if match is None or match["prefix"] == name:
                continue
            complete = match["index"] is not None and match["rest"] is None
            (self.with_index if complete else self.begun).add(match["prefix"])
        # The format before 2016 has no index: a checkpoint is one file, beside the .meta of its graph.
        self.with_index |= {name[:-5] for name in self._names if name.endswith(".meta") and name[:-5] in self._names}

    def has_state_file(self) -> bool:
        return STATE_FILE in self._names

    def has(self, prefix: str) -> bool:
        """Whether any file of a checkpoint is here."""
        if prefix in self.with_index or prefix in self.begun or prefix in self._names:
            return True
        return any(re.fullmatch(re.escape(prefix) + r"-\d{5}-of-\d{5}", name) for name in self._names)


def _stem(prefix: str) -> str:
    match = _NUMBERED.match(prefix)
    return match["stem"] if match else prefix


def step_of(path: str) -> int | None:
    """The global step in a checkpoint's name, or None if there is none."""
    match = _NUMBERED.match(os.path.basename(path))
    return int(match["step"]) if match else None


def _age_key(path: str) -> tuple[bool, int]:
    """Sorts from old to new by the step in the name; before them those without one, by when they were written."""
    step = step_of(path)
    if step is not None:
        return True, step
    try:
        return False, int(file_io.stat(path + ".index").mtime_nsec)
    except errors.OpError:
        return False, 0


def is_in(path: str, directory: str) -> bool:
    """Whether a checkpoint's files lie in a directory."""
    return _real(os.path.dirname(path)) == _real(directory)


def _read_state(directory: _Directory) -> tuple[Any, str | None]:
    """The state file as a protocol buffer, or None; and what is wrong with it, or None."""
    path = os.path.join(directory.path, STATE_FILE)
    if not directory.has_state_file():
        return None, f"There is no state file {path}"
    state = CheckpointState()
    try:
        text_format.Merge(file_io.read_file_to_string(path, binary_mode=True), state)
    except (errors.OpError, text_format.ParseError, UnicodeDecodeError) as error:
        return None, f"The state file {path} can't be read ({_one_line(error)})"
    if not state.model_checkpoint_path:
        return None, f"The state file {path} names no checkpoint"
    return state, None


def _real(path: str) -> str:
    """A path to compare with; those of other file systems than the local one are taken as they are written."""
    return path.rstrip("/") if "://" in path else os.path.realpath(path)


def _find(directory: _Directory, named: str) -> tuple[str | None, bool]:
    """Where a checkpoint that the state file names lies, None if there is nothing of it; whether that is elsewhere.

    In the directory itself first: it may be a copy, whose state file names the place that it was copied from.
    """
    path = os.path.join(directory.path, named)
    parent, base = os.path.split(path)
    here = _real(directory.path)
    if _real(parent) == here:
        return (path if directory.has(base) else None), False
    if not _real(parent).startswith(here + "/") and directory.has(base):
        return os.path.join(directory.path, base), True
    return (path if _Directory(parent).has(base) else None), False


def list_checkpoints(directory: Any) -> Listing:
    """Looks for the checkpoints of a directory, in its state file and among its files. Reads none of them.

    First comes what the state file takes for the newest, as in TensorFlow: whoever edits that file to go back to an
    older checkpoint gets that one. Then the others, newest first. The state file's names hold in this directory, also
    where they are absolute paths of another one.

    Args:
      directory: path of the directory. It needn't exist.

    Returns:
      A `Listing`.

    Raises:
      tf.errors.OpError: the directory is there and can't be listed.
    """
    found = _Directory(os.fspath(directory))
    state, fault = _read_state(found)
    paths: list[str] = []
    rotation: list[str] = []
    remarks: list[str] = []
    stems: set[str] = set()
    prefixes = {prefix for prefix in found.with_index if _NUMBERED.match(prefix)}
    if state is not None:
        newest, every = state.model_checkpoint_path, state.all_model_checkpoint_paths
        path, moved = _find(found, newest)
        paths.append(path or os.path.join(found.path, newest))
        if moved:
            remarks.append(f"The state file of {found.path} names {newest}, in another place; {path} is used")
        named = [path for path in (_find(found, name)[0] for name in every) if path]
        rotation = [path for path in named if is_in(path, found.path)]
        stems = {_stem(os.path.basename(name)) for name in (newest, *every)}
        # Other programs may keep other checkpoints here, which aren't meant when this file says which are.
        prefixes = {prefix for prefix in found.with_index if _stem(prefix) in stems} or prefixes
        others = named + [os.path.join(found.path, prefix) for prefix in prefixes]
    else:
        others = [os.path.join(found.path, prefix) for prefix in prefixes]
        if others:
            remarks.append(f"{fault}; the checkpoints that lie in the directory are used")
        elif found.has_state_file():
            remarks.append(f"{fault}, and no checkpoint lies in the directory: there is nothing to restore")
    known = {os.path.normpath(path) for path in paths}
    for path in sorted(others, key=_age_key, reverse=True):
        if os.path.normpath(path) not in known:
            known.add(os.path.normpath(path))
            paths.append(path)
    begun = [os.path.join(found.path, prefix) for prefix in found.begun - found.with_index if _NUMBERED.match(prefix)]
    interrupted = [path for path in begun if os.path.normpath(path) not in known]
    if stems:
        interrupted = [path for path in interrupted if _stem(os.path.basename(path)) in stems]
    interrupted.sort(key=_age_key, reverse=True)
    return Listing(paths, rotation, interrupted, state is not None, remarks)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def damage_of(path: Any) -> str | None:
    """Reads everything in a checkpoint, and with it the checksum of each tensor.

    Args:
      path: path of the checkpoint, as `Saver.restore` takes it.

    Returns:
      Why it can't be read, in one line; None if it can.
    """
    path = os.fspath(path)
    directory = _Directory(os.path.dirname(path) or ".")
    prefix = os.path.basename(path)
    if not directory.has(prefix):
        return MISSING
    if prefix in directory.begun and prefix not in directory.with_index:
        return "its index file is missing"
    try:
        reader = py_checkpoint_reader.NewCheckpointReader(path)
        names = sorted(reader.get_variable_to_shape_map())
    except (errors.OpError, IndexError, RuntimeError) as error:
        return _one_line(error)
    return next((f"{cause} (in {name})" for name in names if (cause := _damage_of_tensor(reader, name))), None)


def _damage_of_tensor(reader: Any, name: str) -> str | None:
    try:
        reader.get_tensor(name)
    except (errors.InternalError, errors.UnimplementedError):
        # Of a type that Python can't hold, or in a form that this reader doesn't know: not damaged by that.
        return None
    except (errors.OpError, IndexError, RuntimeError) as error:
        return _one_line(error)
    return None


def is_unfinished(path: str) -> bool:
    """Whether the index of a checkpoint has no end, as a save leaves it that is interrupted in its last write."""
    try:
        with file_io.FileIO(path + ".index", "rb") as file:
            size = file.size()
            file.seek(max(0, size - len(_INDEX_ENDS_WITH)))
            return bool(file.read() != _INDEX_ENDS_WITH)
    except errors.OpError:
        return False


def latest_intact_checkpoint(directory: Any) -> str | None:
    """The newest checkpoint of a directory that can be read from the first to the last byte.

    Args:
      directory: path of the directory.

    Returns:
      The checkpoint's path, as `Saver.restore` takes it; None if there is none.
    """
    return next((path for path in list_checkpoints(directory).paths if damage_of(path) is None), None)
