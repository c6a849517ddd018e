"""CheckpointHook, its checkpoint managers, and the code that restores the newest intact checkpoint."""

from __future__ import annotations

import collections
import contextlib
import errno
import inspect
import logging
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import Any

from fastsup.common import stop_signals
from fastsup.common.files import make_checkpoint_directory
from fastsup.core.checks import check_flag, check_no_pattern
from fastsup.core.errors import add_note
from fastsup.core.probe import callback_part_here
from fastsup.loop.periodic import PeriodicHook

_logger = logging.getLogger("fastsup")

NO_ASYNC = "async_save requires a tf.train.CheckpointManager, or a tf.train.Checkpoint and directory, got {!r}."


def is_tensorflows(manager: Any) -> bool:
    """Returns True for a `tf.train.CheckpointManager`."""
    module = sys.modules.get("tensorflow.python.checkpoint.checkpoint_management")
    return module is not None and isinstance(manager, module.CheckpointManager)


def manager_in(directory: str | os.PathLike[str], checkpoint: Any, max_to_keep: int | None) -> Any:
    """Creates a `tf.train.CheckpointManager`."""
    # A program with a tf.train.Checkpoint has already imported TensorFlow.
    tf: Any = sys.modules.get("tensorflow")
    if tf is None or not isinstance(checkpoint, tf.train.Checkpoint):
        raise TypeError(
            f"directory is for the checkpoints of a tf.train.Checkpoint, got {checkpoint!r} to save. Omit directory "
            "if save is a function."
        )
    folder = os.fspath(directory)
    if not folder:
        raise ValueError(f"directory must be the path of a folder, got {directory!r}.")
    try:
        return tf.train.CheckpointManager(checkpoint, folder, max_to_keep)
    except ValueError:
        # The error is about an argument, or about a state file without a checkpoint. In an empty folder, the
        # constructor raises only the error about an argument.
        with tempfile.TemporaryDirectory() as empty:
            manager = tf.train.CheckpointManager(checkpoint, empty, max_to_keep)
        manager._directory, manager._checkpoint_prefix = folder, os.path.join(folder, os.path.basename(manager._prefix))
        return manager


class ManagedSaves:
    """Saves checkpoints by a manager, one at a time.

    A checkpoint from TensorFlow's manager is on disk before an older one is deleted.
    """

    def __init__(self, manager: Any, async_save: bool) -> None:
        save = getattr(manager, "save", None)
        if not callable(save):
            raise TypeError(f"save must be a callable or have a method save(checkpoint_number=...), got {manager!r}")
        if not _takes_checkpoint_number(save):
            raise TypeError(
                f"save must be a callable or have a method save(checkpoint_number=...), got {manager!r}, whose save "
                "doesn't take checkpoint_number. For a tf.train.Checkpoint pass directory=..., or a "
                "tf.train.CheckpointManager; for any other object pass a function of the global step that saves it."
            )
        if async_save and not hasattr(getattr(manager, "checkpoint", None), "sync"):
            raise TypeError(NO_ASYNC.format(manager))
        self.manager = manager
        self._writes_in_thread = async_save
        self._is_tensorflows = is_tensorflows(manager)
        # Finishes the save whose files the thread is writing; None without such a save.
        self._under_way: contextlib.ExitStack | None = None
        # A CheckpointManager with its own interval would skip checkpoints that are due here.
        checks_interval = getattr(manager, "checkpoint_interval", None) is not None
        self._options: dict[str, Any] = {"check_interval": False} if checks_interval else {}
        if async_save:
            import tensorflow as tf

            self._options["options"] = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)
        if self._is_tensorflows:
            from fastsup.checkpoint.durable import keep_durable

            keep_durable(manager)

    def open_directory(self) -> None:
        """Creates the directory of TensorFlow's manager, so that an unusable one is detected early."""
        from fastsup.common.file_system import is_local

        if not self._is_tensorflows or not is_local(self.manager.directory):
            return
        directory = make_checkpoint_directory(self.manager.directory)
        state = os.path.join(directory, "checkpoint")
        if os.path.isdir(state):
            raise IsADirectoryError(
                errno.EISDIR,
                "The state file of checkpoints can't be written: a folder has its name. Move the folder away",
                state,
            )

    def save(self, step: int) -> bool:
        """Saves a checkpoint, or starts to, after the previous write has finished.

        Args:
          step: the global step.

        Returns:
          True if the checkpoint is saved; False while a thread writes it.

        Raises:
          Exception: An error of this save, or of the previous write.
        """
        self.wait()
        if not self._is_tensorflows:
            self.manager.save(checkpoint_number=step, **self._options)
            return not self._writes_in_thread
        from fastsup.checkpoint.durable import save_by_manager

        rest = save_by_manager(self.manager, step, **self._options)
        if self._writes_in_thread:
            self._under_way = rest
        else:
            rest.close()
        return not self._writes_in_thread

    def wait(self) -> bool:
        """Waits for the thread that writes.

        Returns:
          True if the thread was writing, or finished a write since the last call.

        Raises:
          Exception: An error of the write. Each error is raised once.
        """
        under_way, self._under_way = self._under_way, None
        if under_way is None:
            return False
        with under_way:
            self.manager.checkpoint.sync()
            # sync() leaves the error for the next save.
            writer = getattr(self.manager.checkpoint, "_async_checkpointer_impl", None)
            if writer is not None:
                writer._check_async_thread_error()
        return True


def _takes_checkpoint_number(save: Callable[..., Any]) -> bool:
    """Returns True if a method accepts `checkpoint_number`, or if its arguments are unknown."""
    try:
        arguments = inspect.signature(save).parameters
    except (TypeError, ValueError):
        return True
    takes_any_name = any(argument.kind is argument.VAR_KEYWORD for argument in arguments.values())
    return takes_any_name or "checkpoint_number" in arguments


def restore_newest(manager: Any) -> int | None:
    """Restores the newest intact checkpoint.

    Searches the directory, not only the state file, because the state file may be lost or damaged.

    Args:
      manager: the `tf.train.CheckpointManager`, or an object with the same attributes.

    Returns:
      The number at the end of the checkpoint's name, which is its global step; None without a checkpoint.

    Raises:
      NoIntactCheckpointError: If there are checkpoints, but none is intact. The class is derived from
        RuntimeError.
      ValueError: If a checkpoint has no number at the end of its name, or doesn't fit the objects.
      AssertionError: If a checkpoint has no value for any of the objects.
      tf.errors.OpError, OSError, MemoryError: If the files can't currently be read, or not by this user. An older
        checkpoint isn't tried in that case.
    """
    from fastsup.checkpoint.restore import CheckpointRestorer

    def restore(path: str) -> None:
        _number_of(path)
        try:
            status = manager.checkpoint.restore(path)
        except Exception as error:
            add_note(error, f"Raised when {path} was restored.")
            raise
        check_match(manager.checkpoint, status, path)

    listing, place = _listing_of(manager)
    restored = CheckpointRestorer(restore, lambda: None).restore_first(listing, place)
    if restored is None:
        return None
    path, rotation = restored
    if is_tensorflows(manager):
        _continue_after(manager, path, rotation)
    _logger.info("Restored %s: resuming after global step %d.", path, _number_of(path))
    return _number_of(path)


def _listing_of(manager: Any) -> tuple[Any, str]:
    """Returns the checkpoints in the order in which they are tried, and the name of their directory."""
    from fastsup.checkpoint.directory import STATE_FILE, Listing, list_checkpoints, note_state, stem_of

    if is_tensorflows(manager):
        note_state(os.path.join(manager.directory, STATE_FILE))
        listing = list_checkpoints(manager.directory)
        if not listing.named:
            # Checkpoints with other names may be another program's.
            name = os.path.basename(manager._prefix)
            own = [path for path in listing.paths if stem_of(path) == name]
            listing = listing._replace(paths=own or listing.paths)
        return listing, manager.directory
    newest = manager.latest_checkpoint
    if newest is None:
        return Listing([], [], [], False, []), repr(manager)
    older = [path for path in reversed(manager.checkpoints) if path != newest]
    return Listing([newest, *older], list(manager.checkpoints), [], True, []), repr(manager)


def _continue_after(manager: Any, path: str, rotation: list[str]) -> None:
    """Makes a manager continue from a checkpoint that its state file doesn't name as the newest."""
    newest = manager.latest_checkpoint
    if newest is not None and os.path.normpath(newest) == os.path.normpath(path):
        return
    kept = {os.path.normpath(other) for other in rotation} - {os.path.normpath(path)}
    times = [(other, secs) for other, secs in manager._maybe_delete.items() if os.path.normpath(other) in kept]
    manager._maybe_delete = collections.OrderedDict([*times, (path, time.time())])
    manager._latest_checkpoint = path


def check_match(checkpoint: Any, status: Any, path: str) -> None:
    """Rejects a checkpoint without a value for any object, because training would resume from initial values.

    TensorFlow's `assert_nontrivial_match` accepts such a checkpoint, because the counter of saves always matches.
    """
    matched = getattr(getattr(status, "_checkpoint", None), "object_by_proto_id", None)
    if matched is None:
        _check_older_form(status, path)
        return
    counter = getattr(checkpoint, "_save_counter", None)
    root = getattr(status, "_root", checkpoint)
    if any(known is not root and known is not counter for known in matched.values()):
        missing = _names_without_value(root, matched.values(), counter)
        if missing:
            _logger.warning(
                "The checkpoint %s has no value for %s: training continues with their current values. If you don't "
                "want that, pass the objects under the names that they were saved with, or use another directory.",
                path,
                ", ".join(missing),
            )
        return
    names = sorted(name for name in checkpoint._trackable_children() if name != "save_counter")
    if names:
        status.expect_partial()  # TensorFlow need not warn about it as well.
        raise AssertionError(
            f"Nothing except the root object matched a checkpointed value. The checkpoint {path} has no value for "
            f"any of {names}: it belongs to another program, or its objects have other names. Pass the objects under "
            "the "
            "names that they were saved with, or use another directory."
        )


def _names_without_value(root: Any, matched: Iterable[Any], counter: Any) -> list[str]:
    """Returns the names of the variables under an object for which a checkpoint has no value."""
    import tensorflow as tf
    from tensorflow.python.checkpoint.graph_view import ObjectGraphView

    known = {id(each) for each in matched}
    objects, paths = ObjectGraphView(root).breadth_first_traversal()
    variables = [each for each in objects if isinstance(each, tf.Variable) and each is not counter]
    return ["/".join(part.name for part in paths[each]) for each in variables if id(each) not in known]


def _check_older_form(status: Any, path: str) -> None:
    """Rejects a checkpoint that TensorFlow wrongly treated as a Saver's checkpoint in the older format.

    TensorFlow does so if it can't read the whole index. It then restores nothing.
    """
    from tensorflow.python.checkpoint.checkpoint import NameBasedSaverStatus
    from tensorflow.python.framework import errors

    from fastsup.checkpoint.directory import is_object_based, open_checkpoint

    # A status of this class means that TensorFlow assumed the older format.
    if isinstance(status, NameBasedSaverStatus) and is_object_based(open_checkpoint(path)[1]):
        raise errors.UnavailableError(None, None, f"{path}.index could not be read, so nothing was restored from it.")


def _number_of(path: str) -> int:
    found = re.search(r"-(\d+)$", path)
    if found is None:
        raise ValueError(
            f"The checkpoint {path!r} has no number at the end of its name, which would be the global step."
        )
    return int(found.group(1))


class CheckpointHook(PeriodicHook):
    """Saves checkpoints at intervals, and at the end of the loop.

    A loop that ends with an error saves no last checkpoint, because the values may have caused the error.

    A TensorFlow checkpoint is on disk before an older one is deleted.

    Args:
      save: function of the global step; or a `tf.train.CheckpointManager`, or another object with a method
        `save(checkpoint_number=...)`; or, with `directory`, a `tf.train.Checkpoint`.
      every_steps: a checkpoint is saved at the global steps that are multiples of this number, or None.
      every_secs: seconds between checkpoints, or None. With both intervals, the one that passes first counts.
      save_at_end: whether to save after the last step, if no checkpoint of that step exists.
      directory: folder for the checkpoints of a `tf.train.Checkpoint`.
      max_to_keep: number of checkpoints to keep in `directory`. If None, keeps all.
      async_save: whether TensorFlow copies the values and writes them in a thread while training continues. The loop
        waits for the last write when it ends. For a `tf.train.Checkpoint` or `CheckpointManager`.

    Attributes:
      last_saved_step: global step of the last checkpoint of this run, or None.
      manager: the `tf.train.CheckpointManager`, or None if `save` is a function.

    Raises:
      TypeError: If `save` can't be called with one argument and has no such method, `directory` is given for an object
        other than a `tf.train.Checkpoint`, `async_save` for an object that isn't TensorFlow's, or an interval isn't a
        number.
      ValueError: If an interval isn't positive, or neither is given.
    """

    def __init__(
        self,
        save: Callable[[int], Any] | Any,
        every_steps: int | None = None,
        every_secs: float | None = None,
        save_at_end: bool = True,
        *,
        directory: str | os.PathLike[str] | None = None,
        max_to_keep: int | None = 5,
        async_save: bool = False,
    ) -> None:
        super().__init__(every_steps, every_secs)
        check_flag(async_save=async_save)
        if directory is not None:
            save = manager_in(directory, save, max_to_keep)
        if callable(save):
            _check_takes_step(save)
        self._saves = None if callable(save) else ManagedSaves(save, async_save)
        if async_save and self._saves is None:
            raise TypeError(NO_ASYNC.format(save))
        self.manager: Any = None if self._saves is None else self._saves.manager
        # A manager that isn't TensorFlow's may have no `directory`.
        check_no_pattern("directory", getattr(self.manager, "directory", None) or "")
        self._save = save if self._saves is None else self._saves.save
        self._save_at_end = save_at_end
        self.last_saved_step: int | None = None

    def begin(self, loop: Any) -> None:
        if self._saves is not None:
            self._saves.open_directory()
        self.last_saved_step = getattr(loop, "restored_step", None)
        super().begin(loop)

    def act(self, loop: Any) -> None:
        with callback_part_here("save"):
            self._save(loop.global_step)
        self.last_saved_step = loop.global_step

    def end(self, loop: Any) -> None:
        try:
            self._wait_for_the_last_write()
        except BaseException:
            # The failed write may have been the last step's checkpoint.
            self.last_saved_step = None
            raise
        finally:
            if self._save_at_end and loop.global_step != self.last_saved_step:
                self.act(loop)
                self._wait_for_the_last_write()
        path = getattr(self.manager, "latest_checkpoint", None)
        if path is not None or self.last_saved_step is not None:
            stop_signals.log_last_save(path or f"that of step {self.last_saved_step}")

    def on_error(self, loop: Any, error: BaseException) -> None:
        # An error raised here would hide the error that ended training.
        try:
            self._wait_for_the_last_write()
        except Exception as write_error:
            _logger.error("A checkpoint in %s could not be written: %s", self.manager.directory, write_error)

    def _wait_for_the_last_write(self) -> None:
        if self._saves is not None:
            self._saves.wait()


def _check_takes_step(save: Callable[..., Any]) -> None:
    """Raises TypeError for a function that can't be called with only the global step."""
    try:
        signature = inspect.signature(save)
    except (TypeError, ValueError):
        return  # Some C functions have no signature.
    try:
        signature.bind(0)
    except TypeError as error:
        raise TypeError(
            f"save must take the global step as its one argument, got {save!r} with the arguments {signature}: {error}."
        ) from None
