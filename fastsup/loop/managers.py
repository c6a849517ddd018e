"""The managers of checkpoints: TensorFlow's, and objects with such a method `save`."""

from __future__ import annotations

import contextlib
import errno
import inspect
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

NO_ASYNC = "async_save needs a tf.train.CheckpointManager, or a tf.train.Checkpoint and directory, got {!r}."


def is_tensorflows(manager: Any) -> bool:
    """True for a `tf.train.CheckpointManager`.

    Args:
      manager: any object.
    """
    module = sys.modules.get("tensorflow.python.checkpoint.checkpoint_management")
    return module is not None and isinstance(manager, module.CheckpointManager)


def manager_in(directory: str | os.PathLike[str], checkpoint: Any, max_to_keep: int | None) -> Any:
    """Makes a `tf.train.CheckpointManager`.

    Args:
      directory: the folder of its checkpoints. Its state file may be damaged.
      checkpoint: the `tf.train.Checkpoint`.
      max_to_keep: number of checkpoints that stay. None: all.

    Raises:
      TypeError: `checkpoint` is no `tf.train.Checkpoint`.
      ValueError: `max_to_keep` isn't positive.
    """
    # A program that has a tf.train.Checkpoint has imported TensorFlow.
    tf: Any = sys.modules.get("tensorflow")
    if tf is None or not isinstance(checkpoint, tf.train.Checkpoint):
        raise TypeError(
            f"directory is for the checkpoints of a tf.train.Checkpoint, got {checkpoint!r} to save. Leave directory "
            "out for a function of yours."
        )
    folder = os.fspath(directory)
    try:
        return tf.train.CheckpointManager(checkpoint, folder, max_to_keep)
    except ValueError:
        # Of the arguments, or of a state file that names no checkpoint, which the constructor reads.
        with tempfile.TemporaryDirectory() as empty:
            manager = tf.train.CheckpointManager(checkpoint, empty, max_to_keep)
        manager._directory, manager._checkpoint_prefix = folder, os.path.join(folder, os.path.basename(manager._prefix))
        return manager


class ManagedSaves:
    """Saves checkpoints by a manager, one at a time.

    A checkpoint of TensorFlow's manager is on the disk before an older one is deleted.

    Args:
      manager: a `tf.train.CheckpointManager`, or an object with such a method `save`.
      async_save: whether TensorFlow copies the values and writes them in a thread.

    Raises:
      TypeError: `manager` has no such method, or isn't TensorFlow's though `async_save` is on.
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
        # The rest of the save whose files the thread is writing, or None.
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
        """Makes the directory of TensorFlow's manager, so that one that can't be used is found before the first step.

        Raises:
          OSError: there can't be a directory, or it can't be written to.
        """
        from fastsup.common.file_system import is_local

        if not self._is_tensorflows or not is_local(self.manager.directory):
            return
        directory = os.path.abspath(self.manager.directory)
        try:
            os.makedirs(directory, exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(errno.ENOTDIR, "Checkpoints need a directory", directory) from None
        if not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "The directory for checkpoints can't be written to", directory)

    def save(self, step: int) -> bool:
        """Saves a checkpoint, or begins to, after the write before has ended.

        Args:
          step: the global step.

        Returns:
          True if the checkpoint is saved; False while a thread writes it.

        Raises:
          Exception: the error of the save, or of the write before.
        """
        self.wait()
        if not self._is_tensorflows:
            self.manager.save(checkpoint_number=step, **self._options)
            return not self._writes_in_thread
        from fastsup.checkpoint.durable import durable_save, saving
        from fastsup.common.file_system import is_local

        directory = self.manager.directory
        if is_local(directory):
            # Its first save would make the directory too late for the mark.
            with saving(None), contextlib.suppress(FileExistsError):
                os.makedirs(directory)
        with contextlib.ExitStack() as stack:
            stack.enter_context(durable_save(f"{self.manager._prefix}-{step}", directory))
            self.manager.save(checkpoint_number=step, **self._options)
            if self._writes_in_thread:
                self._under_way = stack.pop_all()
        return not self._writes_in_thread

    def wait(self) -> bool:
        """Waits for the thread that writes.

        Returns:
          True if it was writing, or has written since the last call.

        Raises:
          Exception: the error of the write, once.
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
    """Returns True if a method takes the argument `checkpoint_number`, or if its arguments aren't known."""
    try:
        arguments = inspect.signature(save).parameters
    except (TypeError, ValueError):
        return True
    takes_any_name = any(argument.kind is argument.VAR_KEYWORD for argument in arguments.values())
    return takes_any_name or "checkpoint_number" in arguments
