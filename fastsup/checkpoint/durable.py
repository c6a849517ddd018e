"""How a checkpoint becomes durable, in one order for all savers.

First a directory's first save is marked, and a checkpoint of the same step gets a second name. Then the files of the
checkpoint are written, and flushed to the disk with their names in the directory. Then the state file names it: written
under another name, flushed, renamed, and the directory flushed again. Only then are old checkpoints deleted, the second
name, and the mark. So whenever the machine stops, the state file names a checkpoint that is whole. A save that fails
deletes its own files.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf import text_format
from tensorflow.python.checkpoint import checkpoint_management
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import training_util
from tensorflow.python.training.saver import Saver
from tensorflow.python.util import compat, deprecation

from fastsup.checkpoint.directory import STATE_FILE, is_in
from fastsup.checkpoint.first_save import marking_the_first
from fastsup.checkpoint.other_writers import sign, warn_of_other_writer
from fastsup.checkpoint.overwritten import keeping_the_overwritten
from fastsup.common.errors import writing_files
from fastsup.common.file_system import is_local, tensorflow_errors, write_whole
from fastsup.common.files import files_of_checkpoint, fsync_checkpoint
from fastsup.core.checks import pattern_in

__all__ = [
    "checkpoint_name",
    "durable_save",
    "is_failed_save",
    "is_plain_saver",
    "keep_durable",
    "save_durably",
    "saving",
    "write_state",
]

# Attribute of an error that a save has raised.
_FAILED_SAVE = "_fastsup_failed_save"
# What TensorFlow's writers leave when they fail: files that aren't complete, and the directory of the parts.
_UNFINISHED = r"(?:\.index|\.data-\d{5}-of-\d{5})?\.tempstate\d+|_temp\w*"


def is_failed_save(error: BaseException) -> bool:
    """True for an error that was raised by a save.

    Args:
      error: an exception.
    """
    return bool(getattr(error, _FAILED_SAVE, False))


@contextlib.contextmanager
def saving(path: Any) -> Iterator[None]:
    """Wraps a save. If it fails, deletes the files that it has begun, and marks the error as that of a save.

    Args:
      path: path of the checkpoint, with the step; None if it isn't known.

    Raises:
      tf.errors.ResourceExhaustedError: a file is too large, which TensorFlow reports as the end of the input.
      Exception: any other error of the save.
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
    """Wraps a save: what each way to save does before the files are written, and after they are named on the disk.

    Args:
      path: path of the checkpoint, with the step; None if it isn't known.
      directory: directory of the state file.
      other_state_file: whether the state file has another name: training isn't restored from it.

    Raises:
      Exception: as `saving`.
    """
    first = contextlib.nullcontext() if other_state_file else marking_the_first(directory)
    with saving(path), first, keeping_the_overwritten(path):
        yield


def _discard_unfinished(path: str) -> None:
    """Deletes the files of a checkpoint that isn't complete. They would take the room that the next save needs."""
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
    """Writes the state file of a directory, durably. Its content is TensorFlow's.

    Warns of another process that has written it since this one.

    Args:
      directory: the directory.
      newest: path of the newest checkpoint.
      every: paths of the checkpoints that a saver may delete later, oldest first.
      relative: whether the paths are written relative to the directory.
      timestamps: the times of these checkpoints, in seconds, or None.
      last_preserved: time of the last checkpoint that is kept for ever, in seconds, or None.
      name: name of the state file.

    Raises:
      tf.errors.OpError: the file can't be written.
      RuntimeError: the checkpoint has the name of the state file.
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
    warn_of_other_writer(path)
    write_whole(path, text_format.MessageToString(state))
    sign(path)


def is_plain_saver(saver: Any) -> bool:
    """True for a Saver with TensorFlow's own `save`. A program's own may do more than to write the files.

    Args:
      saver: the saver.
    """
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
      step: the global step to name the checkpoint by; None for a name without a step.
      write_meta_graph: whether a `.meta` file with the graph accompanies the checkpoint. None: the saver's default.
      state_file: name of the state file. None: the saver's default.

    Returns:
      The path of the checkpoint, with the step; None if the saver has nothing to save.

    Raises:
      Exception: as `saving`.
    """
    directory = os.path.dirname(os.fsdecode(path))
    number = _number_of(session, step)
    with durable_save(checkpoint_name(saver, path, number), directory, other_state_file=state_file is not None):
        if not is_plain_saver(saver) or saver._is_empty:
            options = {"write_meta_graph": write_meta_graph, "latest_filename": state_file}
            given = {name: value for name, value in options.items() if value is not None}
            state = os.path.join(directory, state_file or STATE_FILE)
            with _program_writes_state(state):
                written = saver.save(session, path, global_step=step, **given)
            if isinstance(written, (str, bytes)) and is_local(written):
                _flush(written)
                _flush(state)
            return written
        written = saver.save(session, path, global_step=number, write_meta_graph=False, write_state=False)
        if write_meta_graph is not False:
            with session.graph.as_default():
                saver.export_meta_graph(checkpoint_management.meta_graph_filename(written))
        if is_local(written) and not _flush(written):
            logging.warning(
                "%s was saved, but isn't there in this process's file system: another task, such as a parameter "
                "server, has written it to a directory of the same name that isn't shared. A restart won't find it. "
                "All tasks must share %s. See `python -m fastsup docs cluster`.",
                written,
                directory,
            )
        saver._RecordLastCheckpoint(written)
        relative = saver._save_relative_paths
        write_state(directory, written, saver.last_checkpoints, relative, name=state_file or STATE_FILE)
        with deprecation.silence():  # TensorFlow's saver calls a deprecated function.
            saver._MaybeDeleteOldCheckpoints()
        return written


def _number_of(session: Any, step: Any) -> Any:
    """The global step as a number, where it is a tensor or a variable, as `Saver.save` reads it; None for none."""
    if step is None or isinstance(step, compat.integral_types):
        return step
    return training_util.global_step(session, step)


def checkpoint_name(saver: Any, path: Any, step: Any) -> str:
    """The path of a checkpoint, as a Saver names it.

    Args:
      saver: the `tf.compat.v1.train.Saver`.
      path: path of the checkpoint, without the step.
      step: the global step, or None.
    """
    name = os.fsdecode(path)
    if step is None:
        return name
    return f"{name}-{int(step):0{8 if getattr(saver, '_pad_step_number', False) else 0}d}"


@contextlib.contextmanager
def _program_writes_state(path: str) -> Iterator[None]:
    """Wraps what writes a state file in the program's own way."""
    warn_of_other_writer(path)
    yield
    sign(path)


def _flush(path: str | bytes) -> bool:
    """Flushes a checkpoint. Returns whether its files are there."""
    with tensorflow_errors("flushed to the disk"):
        return fsync_checkpoint(path)


def keep_durable(manager: Any) -> None:
    """Has a `tf.train.CheckpointManager` make its checkpoints durable before it names them or deletes others.

    And delete none of those in another directory that its state file names.

    Args:
      manager: the manager. One whose class writes the state file in its own way does so, between two flushes.
    """
    if not hasattr(manager, "_record_state") or isinstance(manager._record_state, _StateWriter):
        return
    manager._record_state = _StateWriter(manager)
    for path in list(manager._maybe_delete):
        if not is_in(path, manager.directory) or pattern_in(path):
            del manager._maybe_delete[path]


class _StateWriter:
    """Writes the state file of a manager, in the place of its method: called before and after it deletes checkpoints.

    Args:
      manager: the `tf.train.CheckpointManager`.
    """

    def __init__(self, manager: Any) -> None:
        self._manager = manager
        stock = checkpoint_management.CheckpointManager._record_state
        own = manager._record_state
        self._own = None if getattr(own, "__func__", None) is stock else own

    def __call__(self) -> None:
        manager = self._manager
        newest = manager.latest_checkpoint
        if is_local(newest):
            _flush(newest)
        if self._own is not None:
            state = os.path.join(manager.directory, STATE_FILE)
            with _program_writes_state(state):
                self._own()
            if is_local(state):
                _flush(state)
            return
        write_state(
            manager.directory,
            newest,
            manager._maybe_delete.keys(),
            relative=True,
            timestamps=manager._maybe_delete.values(),
            last_preserved=manager._last_preserved_timestamp,
        )
