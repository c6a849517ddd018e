"""The checkpoints in a directory: which ones exist, if they are complete, and if another process writes there."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
import time
from typing import Any, NamedTuple

from google.protobuf import text_format
from tensorflow.python.framework import errors
from tensorflow.python.lib.io import file_io
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.trackable.base import OBJECT_GRAPH_PROTO_KEY
from tensorflow.python.training import py_checkpoint_reader
from tensorflow.python.training.checkpoint_state_pb2 import CheckpointState

from fastsup.common.errors import is_read_failure
from fastsup.common.file_system import is_local, list_names
from fastsup.core.checks import check_no_pattern, path_argument

__all__ = [
    "Listing",
    "damage_of",
    "directory_argument",
    "has_checkpoint",
    "is_object_based",
    "is_unfinished",
    "latest_intact_checkpoint",
    "list_checkpoints",
    "note_state",
    "open_checkpoint",
    "sign",
    "warn_of_other_writer",
]


def open_checkpoint(path: str) -> tuple[Any, dict[str, list[int]]]:
    """Opens a checkpoint.

    TensorFlow's reader doesn't report an error that ends the list of names early.

    Args:
      path: path of the checkpoint, in the form that `Saver.restore` accepts.

    Returns:
      (reader, shapes): TensorFlow's reader, and a dictionary from tensor names to shapes.

    Raises:
      tf.errors.UnavailableError: If the list is empty. No saver writes such a checkpoint, so the read failed.
      Exception: The same errors as TensorFlow's reader.
    """
    reader = py_checkpoint_reader.NewCheckpointReader(path)
    shapes = reader.get_variable_to_shape_map()
    if not shapes:
        raise errors.UnavailableError(None, None, f"{path}.index can't be read: it seems to have no tensors.")
    return reader, shapes


def is_object_based(shapes: dict[str, list[int]]) -> bool:
    """Returns True for a checkpoint of a `tf.train.Checkpoint`, False for one of a `tf.compat.v1.train.Saver`."""
    return OBJECT_GRAPH_PROTO_KEY in shapes


STATE_FILE = "checkpoint"
# The mark of an unfinished first save. See durable.py.
FIRST_SAVE = ".first_save_under_way"
MISSING = "none of its files exist"

# Matches PREFIX.index, PREFIX.data-00000-of-00001, and the remains of an interrupted save: files with other suffixes,
# and the directory of the parts.
_PART = re.compile(r"(?P<prefix>.+?)(?P<index>\.index)?(?:\.data-\d{5}-of-\d{5})?(?P<rest>\.tempstate\d+|_temp\w*)?$")
# The path of a sharded checkpoint in the format before 2016 is a pattern: PREFIX-?????-of-00002.
_NUMBERED = re.compile(r"(?P<stem>.+?)-(?P<step>\d+)(-\?{5}-of-\d{5})?$")
_SHARD = re.compile(r"(?P<prefix>.+)-\d{5}-of-(?P<shards>\d{5})$")
# The last bytes of an index file, which are written last.
_INDEX_ENDS_WITH = 0xDB4775248B80FB57.to_bytes(8, "little")


def directory_argument(name: str, value: Any) -> Any:
    """Converts an argument that is a directory of checkpoints. TensorFlow's writers refuse a `pathlib.Path`.

    Args:
      name: name of the argument, for the message.
      value: a path (a string, bytes or a `pathlib.Path`), or None for no directory.

    Returns:
      The path as a string, or as bytes if bytes were given, or None for None.

    Raises:
      TypeError: If `value` isn't a path.
      ValueError: If TensorFlow would treat the path as a pattern.
    """
    if value is None:
        return None
    path = path_argument(name, value, "directory")
    check_no_pattern(name, path)
    return path


class Listing(NamedTuple):
    """The checkpoints in a directory that can be restored.

    Args:
      paths: the checkpoints in the order in which a restore tries them.
      rotation: the checkpoints that a saver may delete after writing enough new ones, oldest first: those that the
        state file names and that are in the directory.
      interrupted: the checkpoints without an index that no state file names, newest first.
      named: Whether the state file names a checkpoint.
      remarks: the faults of the state file, one sentence each.
      in_first_save: Whether the first save in the directory has started but not finished.
    """

    paths: list[str]
    rotation: list[str]
    interrupted: list[str]
    named: bool
    remarks: list[str]
    in_first_save: bool = False


class _Directory:
    """The names in a directory, sorted into checkpoints with an index and checkpoints without one."""

    def __init__(self, path: str, state_file: str = STATE_FILE) -> None:
        self.path = path
        self.state_file = state_file
        self._names = set(list_names(path))
        self.with_index: set[str] = set()
        self.begun: set[str] = set()
        for name in self._names:
            match = _PART.match(name)
            if match is None or match["prefix"] == name:
                continue
            complete = match["index"] is not None and match["rest"] is None
            (self.with_index if complete else self.begun).add(match["prefix"])
        # The format before 2016 has no index. A checkpoint is one file, with a .meta file of its graph.
        self.with_index |= {name[:-5] for name in self._names if name.endswith(".meta") and name[:-5] in self._names}
        # A sharded checkpoint consists of its shards and one .meta file.
        for shard in filter(None, map(_SHARD.match, self._names)):
            if f"{shard['prefix']}.meta" in self._names:
                self.with_index.add(f"{shard['prefix']}-?????-of-{shard['shards']}")

    def has_state_file(self) -> bool:
        return self.state_file in self._names

    def is_in_first_save(self) -> bool:
        return FIRST_SAVE in self._names and not self.has_state_file()

    def has(self, prefix: str) -> bool:
        """Returns True if the directory has any file of a checkpoint."""
        if prefix in self.with_index or prefix in self.begun or prefix in self._names:
            return True
        # Find the shards of a sharded checkpoint, regardless of whether the path contains their number.
        name = re.escape(prefix).replace(r"\?" * 5, r"\d{5}")
        return any(re.fullmatch(rf"{name}(-\d{{5}}-of-\d{{5}})?", other) for other in self._names)


def has_checkpoint(directory: str) -> bool:
    """Returns True if a directory has a checkpoint with an index, or one in the format without an index."""
    return bool(_Directory(directory).with_index)


def stem_of(path: str) -> str:
    """Returns the name of a checkpoint without the global step."""
    name = os.path.basename(path)
    match = _NUMBERED.match(name)
    return match["stem"] if match else name


def step_of(path: str) -> int | None:
    """Returns the global step in a checkpoint's name, or None if the name has no step."""
    match = _NUMBERED.match(os.path.basename(path))
    return int(match["step"]) if match else None


def _age_key(path: str) -> tuple[bool, int, int]:
    """Returns a key that sorts checkpoints from old to new: those without a step by time, then the others by step.

    If two have the same step, the longer name belongs to the one that the other overwrites.
    """
    step = step_of(path)
    if step is not None:
        return True, step, -len(path)
    try:
        return False, int(file_io.stat(path + ".index").mtime_nsec), 0
    except errors.OpError:
        return False, 0, 0


def is_in(path: str, directory: str) -> bool:
    """Returns True if a checkpoint's files are in a directory or below it."""
    return f"{_real(os.path.dirname(path))}/".startswith(f"{_real(directory).rstrip('/')}/")


def _read_state(directory: _Directory) -> tuple[Any, str | None]:
    """Reads the state file. Returns (its protocol buffer or None, its fault or None)."""
    path = os.path.join(directory.path, directory.state_file)
    if not directory.has_state_file():
        return None, f"There is no state file {path}"
    state = CheckpointState()
    try:
        text_format.Merge(file_io.read_file_to_string(path, binary_mode=True), state)
    except (errors.OpError, text_format.ParseError, UnicodeDecodeError) as error:
        return None, f"The state file {path} can't be read ({_one_line(error)})"
    if not state.model_checkpoint_path:
        return None, f"The state file {path} contains no checkpoint"
    return state, None


def _real(path: str) -> str:
    """Returns a path in the form for comparisons. Paths on remote file systems are compared as text."""
    return os.path.realpath(path) if is_local(path) else path.rstrip("/")


def _find(directory: _Directory, named: str) -> tuple[str | None, bool]:
    """Finds a checkpoint that the state file names.

    Searches the directory itself first, because it may be a copy whose state file names the original directory.

    Args:
      directory: the directory with the state file.
      named: the path in the state file.

    Returns:
      (path, moved). The path is None if no file of the checkpoint exists. `moved` is True if the state file names a
      different directory.
    """
    path = os.path.join(directory.path, named)
    parent, base = os.path.split(path)
    here = _real(directory.path)
    if _real(parent) == here:
        return (path if directory.has(base) else None), False
    if not _real(parent).startswith(here + "/") and directory.has(base):
        return os.path.join(directory.path, base), True
    return (path if _Directory(parent).has(base) else None), False


def list_checkpoints(directory: Any, state_file: str = STATE_FILE) -> Listing:
    """Lists the checkpoints in a directory from its state file and its files. Reads no checkpoint.

    As in TensorFlow, the checkpoint that the state file calls the newest comes first, so a user can go back to an older
    one by editing that file. The others follow, newest first. If the state file contains a path in another directory,
    the checkpoint with the same name in this directory is used if it exists.
    """
    found = _Directory(os.fspath(directory), state_file)
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
            remarks.append(f"The state file of {found.path} refers to {newest}, in another directory; {path} is used")
        named = [path for path in (_find(found, name)[0] for name in every) if path]
        rotation = [path for path in named if is_in(path, found.path)]
        stems = {stem_of(name) for name in (newest, *every)}
        # Checkpoints with other names may belong to other programs.
        prefixes = {prefix for prefix in found.with_index if stem_of(prefix) in stems} or prefixes
        others = named + [os.path.join(found.path, prefix) for prefix in prefixes]
    else:
        others = [os.path.join(found.path, prefix) for prefix in prefixes]
        if others:
            remarks.append(f"{fault}; the checkpoints in the directory are used instead")
        elif found.has_state_file():
            remarks.append(f"{fault}, and the directory contains no checkpoint: there is nothing to restore")
    known = {os.path.normpath(path) for path in paths}
    for path in sorted(others, key=_age_key, reverse=True):
        if os.path.normpath(path) not in known:
            known.add(os.path.normpath(path))
            paths.append(path)
    begun = [os.path.join(found.path, prefix) for prefix in found.begun - found.with_index if _NUMBERED.match(prefix)]
    interrupted = [path for path in begun if os.path.normpath(path) not in known]
    if stems:
        interrupted = [path for path in interrupted if stem_of(path) in stems]
    interrupted.sort(key=_age_key, reverse=True)
    return Listing(paths, rotation, interrupted, state is not None, remarks, found.is_in_first_save())


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def damage_of(path: Any) -> str | None:
    """Reads a whole checkpoint, which checks the checksum of each tensor.

    Args:
      path: path of the checkpoint, in the form that `Saver.restore` accepts.

    Returns:
      The reason why the checkpoint can't be read, in one line, or None if it can be read.

    Raises:
      tf.errors.OpError: If the files can't be read at present, or not by this user, so that their state is unknown.
    """
    path = os.fspath(path)
    directory = _Directory(os.path.dirname(path) or ".")
    prefix = os.path.basename(path)
    if not directory.has(prefix):
        return MISSING
    if prefix in directory.begun and prefix not in directory.with_index:
        return "its index file is missing"
    try:
        reader, shapes = open_checkpoint(path)
    except (errors.OpError, IndexError, RuntimeError) as error:
        return _damage_in(error)
    return next((f"{cause} (in {name})" for name in sorted(shapes) if (cause := _damage_of_tensor(reader, name))), None)


def _damage_of_tensor(reader: Any, name: str) -> str | None:
    try:
        reader.get_tensor(name)
    except (errors.InternalError, errors.UnimplementedError):
        # A type that Python can't represent, or a form that this reader doesn't support, isn't damage.
        return None
    except (errors.OpError, IndexError, RuntimeError) as error:
        return _damage_in(error)
    return None


def _damage_in(error: Exception) -> str:
    if is_read_failure(error):
        raise error
    return _one_line(error)


def is_unfinished(path: str) -> bool:
    """Returns True if the index of a checkpoint lacks its end, as after an interrupted save."""
    try:
        with file_io.FileIO(path + ".index", "rb") as file:
            size = file.size()
            file.seek(max(0, size - len(_INDEX_ENDS_WITH)))
            return bool(file.read() != _INDEX_ENDS_WITH)
    except errors.OpError:
        return False


def latest_intact_checkpoint(directory: Any) -> str | None:
    """Finds the newest checkpoint in a directory that can be read completely.

    Args:
      directory: path of the directory, as a string or a `pathlib.Path`.

    Returns:
      The checkpoint's path, in the form that `Saver.restore` accepts, or None if there is none.

    Raises:
      tf.errors.OpError: If the directory exists but can't be listed, or a checkpoint can't be read at present.
    """
    return next((path for path in list_checkpoints(directory).paths if damage_of(path) is None), None)


# Detects two training runs that save in one directory.
#
# Each run would overwrite the state file and the checkpoints of the same steps, and delete its own checkpoints. Before
# a run replaces a state file, it therefore checks if another process has replaced the file since this process wrote or
# read it. An extended attribute of the file names the process that wrote it. The content remains TensorFlow's, because
# programs read it line by line. The check needs no lock: a killed process doesn't save again, and a restarted process
# reads the state file first. On a file system without such attributes, there is no warning.

_ATTRIBUTE = "user.fastsup.writer"


class _State(NamedTuple):
    """A state file as this process last wrote or read it."""

    identity: tuple[int, int, int] | None
    writer: str


class _Process:
    """This process and its state files. All its sessions and loops count as one writer."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.id = secrets.token_hex(8)
        self.since = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        self.known: dict[str, _State] = {}
        self.warned: set[tuple[str, str]] = set()


_process = _Process()


def _this_process() -> _Process:
    global _process
    if _process.pid != os.getpid():  # This process was forked.
        _process = _Process()
    return _process


def sign(path: str) -> None:
    """Marks a state file as written by this process, and records the file."""
    process = _this_process()
    if is_local(path) and hasattr(os, "setxattr"):
        about = f"process {process.pid} on {socket.gethostname()}, running since {process.since}"
        # The number distinguishes two saves by one process.
        writer = f"{about}, id {process.id}, save {secrets.token_hex(8)}"
        with contextlib.suppress(OSError):
            os.setxattr(path, _ATTRIBUTE, writer.encode(errors="replace"), follow_symlinks=False)
    note_state(path)


def note_state(path: str) -> None:
    """Records the current state file: this process wrote it, or resumes from the checkpoint that it names."""
    # Read the identity before the writer, so that a replacement between the two reads is detected.
    identity = _identity(path)
    _this_process().known[_key(path)] = _State(identity, _writer(path))


def warn_of_other_writer(path: str) -> None:
    """Warns if another process has replaced a state file since `note_state`, once for each such process."""
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
        "%s was replaced by another program: %s saved there after this program, process %d, last used it. "
        "Each overwrites the other's checkpoints, and a restart restores only one of them. Stop one of them, or give "
        "each its own directory. See `python -m fastsup docs saving#two-trainings-in-one-directory`.",
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
    """Returns the identity of a local file, which changes with each write or replacement, or None if it isn't known."""
    if not is_local(path):
        return None
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _writer(path: str) -> str:
    """Returns the mark that `sign` wrote to a file, or ""."""
    if not is_local(path) or not hasattr(os, "getxattr"):
        return ""
    try:
        return os.getxattr(path, _ATTRIBUTE, follow_symlinks=False).decode(errors="replace")
    except OSError:
        return ""
