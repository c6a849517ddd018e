"""Makes checkpoints durable, in one order for all savers. `save_durably` and `save_by_manager` use both parts.

`durable_save` wraps a save. First, it marks a directory's first save, and gives a checkpoint with the same step a
second name. Then the saver writes the checkpoint's files. `name_durably` flushes these, with their names in the
directory, to the disk, and makes the state file name the checkpoint: the state file is written under another name,
flushed and renamed, and the directory is flushed again. Only then does the saver delete old checkpoints, and
`durable_save` the second name and the mark. Whenever the machine stops, the state file therefore names a complete
checkpoint. A failed save deletes its own files.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from google.protobuf import text_format
from tensorflow.python.checkpoint import checkpoint_management
from tensorflow.python.framework import errors
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import training_util
from tensorflow.python.training.saver import Saver
from tensorflow.python.util import compat, deprecation

from fastsup.checkpoint.directory import (
    FIRST_SAVE,
    STATE_FILE,
    damage_of,
    has_checkpoint,
    is_in,
    sign,
    stem_of,
    step_of,
    warn_of_other_writer,
)
from fastsup.common.errors import writing_files
from fastsup.common.file_system import exists, is_local, tensorflow_errors, write_whole
from fastsup.common.files import (
    copy_to_new,
    files_of_checkpoint,
    fsync_checkpoint,
    fsync_directory_and_above,
    replace_link,
)
from fastsup.core.checks import pattern_in

__all__ = [
    "checkpoint_name",
    "durable_save",
    "is_failed_save",
    "is_plain_saver",
    "keep_durable",
    "keeping_the_overwritten",
    "marking_the_first",
    "name_by_saver",
    "name_durably",
    "save_by_manager",
    "save_durably",
    "saving",
    "write_state",
]

# A mark in a directory whose first save hasn't finished.
#
# Until the first save finishes, no state file names a checkpoint. If the machine loses power before that, the
# checkpoint's index may be complete and its data torn. The directory then looks as if it had lost its state file, and
# its checkpoints were damaged. With the mark, it is clear that nothing had been saved yet, and training starts from the
# beginning.

_TEXT = "The first save in this directory has started but not finished. A later save deletes this file.\n"


@contextlib.contextmanager
def marking_the_first(directory: str) -> Iterator[None]:
    """Wraps a save. A directory that doesn't exist or isn't local gets no mark."""
    if not is_local(directory):
        yield
        return
    mark = os.path.join(directory, FIRST_SAVE)
    # If there is no directory, the save itself fails.
    if os.path.isdir(directory or ".") and not exists(os.path.join(directory, STATE_FILE)):
        write_whole(mark, _TEXT)
        with tensorflow_errors("flushed to the disk", directory):
            fsync_directory_and_above(directory or ".")
    try:
        yield
    except GeneratorExit:
        raise  # The program has abandoned a save that a thread may still be writing.
    except BaseException:
        # The mark remains if the directory has an index, which may be torn, or if it can't be read.
        with contextlib.suppress(OSError, errors.OpError):
            if not has_checkpoint(directory or "."):
                os.unlink(mark)
        raise
    # A mark that can't be deleted is harmless, because it has no effect if there is a state file.
    with contextlib.suppress(OSError):
        os.unlink(mark)


# Saves that overwrite a checkpoint. The earlier checkpoint gets another name until the new one is durable.
#
# TensorFlow replaces the files of a checkpoint one by one. If the process is killed or the power is lost in between,
# the index and the data belong to different states, and neither can be restored. A checkpoint of the same step is
# written again after a partial restore, and if a program's steps don't change the global step.

# Number of digits of the step in the earlier checkpoint's other name. A restore tries all names with the same text
# before the number.
_DIGITS = 20


@contextlib.contextmanager
def keeping_the_overwritten(path: str | None) -> Iterator[None]:
    """Wraps a save. If it fails after it has replaced a file, the earlier checkpoint keeps its other name.

    An index that is a symbolic link becomes a file. Otherwise TensorFlow would write to the link's target, such as
    another run's checkpoint.

    Args:
      path: path of the checkpoint, with the step, or None if it isn't known. A remote checkpoint, one without a step,
        or one in the first format (without an index) is overwritten as in TensorFlow.

    Raises:
      tf.errors.OpError: If the earlier checkpoint can't get its other name.
    """
    if path is None or not is_local(path) or not os.path.lexists(path + ".index"):
        yield
        return
    with tensorflow_errors("copied", path + ".index"):
        replace_link(path + ".index")
    if step_of(path) is None or not os.path.exists(path + ".index"):
        yield
        return
    before = _identities(path)
    _keep_under_another_name(path)
    try:
        yield
    except GeneratorExit:
        raise  # The writing thread may still run.
    except BaseException:
        with contextlib.suppress(OSError):
            if _identities(path) == before:
                _delete(files_of_checkpoint(_other_name(path)))
        raise
    # Also delete the other names that killed saves left here. The newest checkpoint is on the disk now.
    other_names = re.compile(re.escape(stem_of(path)) + rf"-\d{{{_DIGITS}}}\.(?:index|meta|data-.*)")
    directory = os.path.dirname(path)
    with contextlib.suppress(OSError):
        _delete(os.path.join(directory, name) for name in os.listdir(directory or ".") if other_names.fullmatch(name))


def _other_name(path: str) -> str:
    return os.path.join(os.path.dirname(path), f"{stem_of(path)}-{step_of(path):0{_DIGITS}d}")


def _identities(path: str) -> dict[str, tuple[int, int, int]]:
    """Returns the identities of a checkpoint's files, which change with each write or replacement."""
    statuses = {name: os.lstat(name) for name in files_of_checkpoint(path)}
    return {name: (status.st_ino, status.st_size, status.st_mtime_ns) for name, status in statuses.items()}


def _delete(names: Iterable[str]) -> None:
    for name in names:
        # A file that can't be deleted is harmless, because the newer one is tried first.
        with contextlib.suppress(OSError):
            os.unlink(name)


def _keep_under_another_name(path: str) -> None:
    """Gives a complete checkpoint a second name, durably."""
    other = _other_name(path)
    if os.path.exists(other + ".index") and damage_of(path) is not None:
        return  # A failed save left this checkpoint. The checkpoint with the other name is intact.
    stem = len(os.path.basename(path))
    try:
        with tensorflow_errors("kept while it is overwritten", path):
            # The index comes last, because it makes the files a checkpoint.
            for name in sorted(files_of_checkpoint(path), key=lambda name: name.endswith(".index")):
                _link_or_copy(name, other + os.path.basename(name)[stem:])
            fsync_checkpoint(other)
    except BaseException:
        with contextlib.suppress(OSError):
            _delete(files_of_checkpoint(other))
        raise


def _link_or_copy(name: str, other: str) -> None:
    """Gives a checkpoint's file a second name. Copies an index, because TensorFlow may write it in place."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(other)
    if not name.endswith(".index"):
        with contextlib.suppress(OSError):
            os.link(name, other)
            return
    copy_to_new(name, other)


# Name of the attribute that marks an error as raised by a save.
_FAILED_SAVE = "_fastsup_failed_save"
# The remains of failed TensorFlow writers: incomplete files, and the directory of the parts.
_UNFINISHED = r"(?:\.index|\.data-\d{5}-of-\d{5})?\.tempstate\d+|_temp\w*"


def is_failed_save(error: BaseException) -> bool:
    """Returns True for an error that was raised by a save."""
    return bool(getattr(error, _FAILED_SAVE, False))


@contextlib.contextmanager
def saving(path: Any) -> Iterator[None]:
    """Wraps a save. If it fails, deletes its unfinished files, and marks the error as a save's.

    Args:
      path: path of the checkpoint, with the step, or None if it isn't known.

    Raises:
      tf.errors.ResourceExhaustedError: If a file is too large, which TensorFlow reports as the end of the input.
      Exception: Any other error of the save.
    """
    try:
        with writing_files():
            yield
    except Exception as error:
        if path is not None:
            _discard_unfinished(os.fsdecode(path))
        error.__dict__[_FAILED_SAVE] = True
        raise


@contextlib.contextmanager
def durable_save(path: str | None, directory: str, other_state_file: bool = False) -> Iterator[None]:
    """Wraps a save, with the work before the files are written and after they are named on the disk."""
    first = contextlib.nullcontext() if other_state_file else marking_the_first(directory)
    with saving(path), first, keeping_the_overwritten(path):
        yield


def name_durably(newest: str | bytes, state: str, write: Callable[[], object]) -> bool:
    """Flushes a checkpoint, and names it in a state file. Older checkpoints may be deleted afterwards.

    Warns if another process has written the state file since this one.

    Args:
      newest: path of the checkpoint, whose files are written.
      state: path of the state file.
      write: function that durably writes the state file.

    Returns:
      False if the checkpoint is local and its files don't exist.

    Raises:
      tf.errors.OpError: If the files can't be flushed.
      Exception: The error of `write`.
    """
    is_there = _flush(newest)
    with _writing_state(state):
        write()
    return is_there


@contextlib.contextmanager
def _writing_state(path: str) -> Iterator[None]:
    """Wraps the writing of a state file."""
    warn_of_other_writer(path)
    yield
    sign(path)


def _flush(path: str | bytes) -> bool:
    """Flushes the local files of a path. Returns False if there are none."""
    if not is_local(path):
        return True
    with tensorflow_errors("flushed to the disk"):
        return fsync_checkpoint(path)


def _discard_unfinished(path: str) -> None:
    """Deletes the files of an incomplete checkpoint, because the next save may need the space."""
    if not is_local(path) or not os.path.isdir(os.path.dirname(path) or "."):
        return
    try:
        names = files_of_checkpoint(path, also=_UNFINISHED)
        suffixes = {name: os.path.basename(name)[len(os.path.basename(path)) :] for name in names}
        is_complete = ".index" in suffixes.values()
        for name, suffix in suffixes.items():
            if os.path.isdir(name):
                shutil.rmtree(name)
            elif "tempstate" in suffix or (suffix.startswith(".data-") and not is_complete):
                os.unlink(name)
    except OSError as error:
        logging.warning("The files of the failed save of %s can't be deleted: %s", path, error)


def write_state(
    directory: str,
    newest: str,
    every: Iterable[str],
    relative: bool,
    timestamps: Iterable[float] | None = None,
    last_preserved: float | None = None,
    name: str = "checkpoint",
) -> None:
    """Durably writes the state file of a directory, with TensorFlow's content.

    Args:
      directory: the directory.
      newest: path of the newest checkpoint.
      every: paths of the checkpoints that a saver may delete later, oldest first.
      relative: Whether the paths are written relative to the directory.
      timestamps: the times of these checkpoints, in seconds, or None.
      last_preserved: time of the last checkpoint that is kept permanently, in seconds, or None.
      name: name of the state file.

    Raises:
      tf.errors.OpError: If the file can't be written.
      RuntimeError: If the checkpoint has the name of the state file.
    """

    def written(path: str) -> str:
        return os.path.relpath(path, directory) if relative and os.path.isabs(path) else path

    state = checkpoint_management.generate_checkpoint_state_proto(
        directory,
        written(newest),
        all_model_checkpoint_paths=[written(path) for path in every],
        all_model_checkpoint_timestamps=None if timestamps is None else list(timestamps),
        last_preserved_timestamp=last_preserved,
    )
    path = os.path.join(directory, name)
    if path == state.model_checkpoint_path:
        raise RuntimeError(
            f"Save path '{newest}' conflicts with path used for checkpoint state.  Please use a different save path."
        )
    write_whole(path, text_format.MessageToString(state))


def is_plain_saver(saver: Any) -> bool:
    """Returns True for a Saver with TensorFlow's own `save`. A program's `save` may do more than write the files."""
    return getattr(type(saver), "save", None) is Saver.save and "save" not in vars(saver)


def save_durably(
    saver: Any,
    session: Any,
    path: str,
    step: Any,
    write_meta_graph: bool | None = None,
    state_file: str | None = None,
) -> Any:
    """Saves a checkpoint with a Saver.

    Args:
      saver: the `tf.compat.v1.train.Saver`.
      session: the session to save in.
      path: path of the checkpoint, without the step.
      step: the global step for the checkpoint's name. If None, the name has no step.
      write_meta_graph: Whether to write a `.meta` file with the graph. If None, uses the saver's default.
      state_file: name of the state file. If None, uses the saver's default.

    Returns:
      The path of the checkpoint, with the step, or None if the saver has nothing to save.

    Raises:
      Exception: As for `saving`.
    """
    directory = os.path.dirname(os.fsdecode(path))
    state = os.path.join(directory, state_file or STATE_FILE)
    number = _number_of(session, step)
    with durable_save(checkpoint_name(saver, path, number), directory, other_state_file=state_file is not None):
        if not is_plain_saver(saver) or saver._is_empty:
            # This saver names the checkpoint, and deletes older ones, in its own order.
            options = {"write_meta_graph": write_meta_graph, "latest_filename": state_file}
            given = {name: value for name, value in options.items() if value is not None}
            with _writing_state(state):
                written = saver.save(session, path, global_step=step, **given)
            if isinstance(written, (str, bytes)):
                _flush(written)
                _flush(state)
            return written
        written = saver.save(session, path, global_step=number, write_meta_graph=False, write_state=False)
        if write_meta_graph is not False:
            with session.graph.as_default():
                saver.export_meta_graph(checkpoint_management.meta_graph_filename(written))
        if not name_by_saver(saver, written, directory, state_file or STATE_FILE):
            logging.warning(
                "%s was saved, but this process can't find it: another task, such as a parameter server, wrote it to "
                "a directory of the same name that isn't shared. A restart won't find it. "
                "All tasks must share %s. See `python -m fastsup docs cluster`.",
                written,
                directory,
            )
        with deprecation.silence():  # TensorFlow's saver calls a deprecated function.
            saver._MaybeDeleteOldCheckpoints()
        return written


def name_by_saver(saver: Any, path: str, directory: str, state_file: str = STATE_FILE, is_new: bool = True) -> bool:
    """Makes a Saver's state file name a checkpoint as the newest one. Returns the result of `name_durably`.

    Args:
      saver: the `tf.compat.v1.train.Saver`.
      path: path of the checkpoint, with the step.
      directory: directory of the state file.
      state_file: name of the state file.
      is_new: False for a checkpoint that was already the Saver's newest.
    """

    def write() -> None:
        if is_new:
            saver._RecordLastCheckpoint(path)
        write_state(directory, path, saver.last_checkpoints, saver._save_relative_paths, name=state_file)

    return name_durably(path, os.path.join(directory, state_file), write)


def _number_of(session: Any, step: Any) -> Any:
    """Returns the global step as a number, as `Saver.save` reads it, even if it is a tensor or a variable; or None."""
    if step is None or isinstance(step, compat.integral_types):
        return step
    return training_util.global_step(session, step)


def checkpoint_name(saver: Any, path: Any, step: Any) -> str:
    """Returns the path of a checkpoint, as a Saver names it."""
    name = os.fsdecode(path)
    if step is None:
        return name
    return f"{name}-{int(step):0{8 if getattr(saver, '_pad_step_number', False) else 0}d}"


def save_by_manager(manager: Any, step: int, **options: Any) -> contextlib.ExitStack:
    """Saves a checkpoint with a `tf.train.CheckpointManager` that `keep_durable` has prepared.

    Args:
      manager: the manager.
      step: the number of the checkpoint.
      **options: additional arguments for the manager's `save`.

    Returns:
      The rest of the save, to close when the files are written, because a thread may still be writing them.

    Raises:
      Exception: As for `saving`.
    """
    directory = manager.directory
    if is_local(directory):
        # Create the directory here, because the manager would create it too late for the mark.
        with saving(None), contextlib.suppress(FileExistsError):
            os.makedirs(directory)
    with contextlib.ExitStack() as stack:
        stack.enter_context(durable_save(f"{manager._prefix}-{step}", directory))
        manager.save(checkpoint_number=step, **options)
        return stack.pop_all()


def keep_durable(manager: Any) -> None:
    """Makes a `tf.train.CheckpointManager` flush its checkpoints before it names them or deletes others.

    Also keeps it from deleting checkpoints in another directory that its state file names.
    """
    if not hasattr(manager, "_record_state") or isinstance(manager._record_state, _StateWriter):
        return
    manager._record_state = _StateWriter(manager)
    for path in list(manager._maybe_delete):
        if not is_in(path, manager.directory) or pattern_in(path):
            del manager._maybe_delete[path]


class _StateWriter:
    """Writes a manager's state file instead of its method. Called before and after it deletes checkpoints."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager
        stock = checkpoint_management.CheckpointManager._record_state
        own = manager._record_state
        self._own = None if getattr(own, "__func__", None) is stock else own

    def __call__(self) -> None:
        manager = self._manager
        state = os.path.join(manager.directory, STATE_FILE)

        def write() -> None:
            if self._own is not None:
                self._own()
                _flush(state)
                return
            write_state(
                manager.directory,
                manager.latest_checkpoint,
                manager._maybe_delete.keys(),
                relative=True,
                timestamps=manager._maybe_delete.values(),
                last_preserved=manager._last_preserved_timestamp,
            )

        name_durably(manager.latest_checkpoint, state, write)
