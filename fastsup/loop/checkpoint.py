"""The hook that saves checkpoints, with a function or manager of the program's."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable
from typing import Any

from fastsup.core.checks import check_flag, check_no_pattern
from fastsup.loop.periodic import PeriodicHook

_logger = logging.getLogger("fastsup")


class CheckpointHook(PeriodicHook):
    """Saves checkpoints at intervals, and at the end of the loop.

    A loop that ends with an error saves no last checkpoint: the error may come from the values that it would save.

    Args:
      save: function of the global step; or a `tf.train.CheckpointManager`, or another object with a method
        `save(checkpoint_number=...)`; or, with `directory`, a `tf.train.Checkpoint`.
      every_steps: a checkpoint is saved at the global steps that are multiples of this number, or None.
      every_secs: seconds between two checkpoints, or None. With both intervals, the one that passes first counts.
      save_at_end: whether to save after the last step, if no checkpoint of that step exists.
      directory: folder for the checkpoints of a `tf.train.Checkpoint`.
      max_to_keep: number of checkpoints that stay in `directory`. None: all.
      async_save: whether TensorFlow copies the values and writes them in a thread while training goes on. The loop
        waits for the last write when it ends. For a `tf.train.Checkpoint` or `CheckpointManager`.

    Attributes:
      last_saved_step: global step of the last checkpoint of this run, or None.
      manager: the `tf.train.CheckpointManager`, or None if `save` is a function.

    Raises:
      TypeError: `save` can't be called and has no such method, `directory` is given for something else than a
        `tf.train.Checkpoint`, `async_save` for something that isn't TensorFlow's, or an interval isn't a number.
      ValueError: an interval isn't positive, or neither is given.
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
        self.manager: Any = None if callable(save) else save
        # An object of the program's own may keep its checkpoints elsewhere.
        check_no_pattern("directory", getattr(self.manager, "directory", None) or "")
        if async_save and not hasattr(getattr(self.manager, "checkpoint", None), "sync"):
            raise TypeError(
                f"async_save needs a tf.train.CheckpointManager, or a tf.train.Checkpoint and directory, got {save!r}."
            )
        self._save = save if callable(save) else saver_of(save, async_save)
        self._save_at_end = save_at_end
        self._writes_in_thread = async_save
        self.last_saved_step: int | None = None

    def begin(self, loop: Any) -> None:
        self.last_saved_step = getattr(loop, "restored_step", None)
        super().begin(loop)

    def act(self, loop: Any) -> None:
        self._save(loop.global_step)
        self.last_saved_step = loop.global_step

    def end(self, loop: Any) -> None:
        if self._save_at_end and loop.global_step != self.last_saved_step:
            self.act(loop)
        self._wait_for_the_last_write()

    def on_error(self, loop: Any, error: BaseException) -> None:
        # What is raised here would hide why training has failed.
        try:
            self._wait_for_the_last_write()
        except Exception as write_error:
            _logger.error("A checkpoint in %s could not be written: %s", self.manager.directory, write_error)

    def _wait_for_the_last_write(self) -> None:
        if self._writes_in_thread:
            wait_for_the_last_write(self.manager)


def wait_for_the_last_write(manager: Any) -> None:
    """Waits for the thread that writes the checkpoints of a `tf.train.CheckpointManager`, if there is one.

    Raises:
      Exception: the error of the last write, once.
    """
    manager.checkpoint.sync()
    # sync() leaves the error for the next save.
    writer = getattr(manager.checkpoint, "_async_checkpointer_impl", None)
    if writer is not None:
        writer._check_async_thread_error()


def manager_in(directory: str | os.PathLike[str], checkpoint: Any, max_to_keep: int | None) -> Any:
    """Makes a `tf.train.CheckpointManager`.

    Args:
      directory: the folder of its checkpoints.
      checkpoint: the `tf.train.Checkpoint`.
      max_to_keep: number of checkpoints that stay. None: all.

    Raises:
      TypeError: `checkpoint` is no `tf.train.Checkpoint`.
    """
    import tensorflow as tf

    if not isinstance(checkpoint, tf.train.Checkpoint):
        raise TypeError(f"directory is for the checkpoints of a tf.train.Checkpoint, got {checkpoint!r} to save.")
    return tf.train.CheckpointManager(checkpoint, os.fspath(directory), max_to_keep)


def saver_of(manager: Any, async_save: bool) -> Callable[[int], Any]:
    """Returns a function of the global step that saves a checkpoint.

    Args:
      manager: a `tf.train.CheckpointManager`, or an object with such a method `save`.
      async_save: whether TensorFlow writes the files in a thread.

    Raises:
      TypeError: `manager` has no such method.
    """
    save = getattr(manager, "save", None)
    if not callable(save):
        raise TypeError(f"save must be a callable or have a method save(checkpoint_number=...), got {manager!r}")
    if not _takes_checkpoint_number(save):
        raise TypeError(
            f"save must be a callable or have a method save(checkpoint_number=...), got {manager!r}, whose save "
            "doesn't take checkpoint_number. For a tf.train.Checkpoint pass directory=..., or a "
            "tf.train.CheckpointManager; for any other object pass a function of the global step that saves it."
        )
    # A CheckpointManager with an interval of its own would skip checkpoints that are due here.
    checks_interval = getattr(manager, "checkpoint_interval", None) is not None
    options: dict[str, Any] = {"check_interval": False} if checks_interval else {}
    if async_save:
        import tensorflow as tf

        options["options"] = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)
    return lambda step: manager.save(checkpoint_number=step, **options)


def _takes_checkpoint_number(save: Callable[..., Any]) -> bool:
    """Returns True if a method takes the argument `checkpoint_number`, or if its arguments aren't known."""
    try:
        arguments = inspect.signature(save).parameters
    except (TypeError, ValueError):
        return True
    takes_any_name = any(argument.kind is argument.VAR_KEYWORD for argument in arguments.values())
    return takes_any_name or "checkpoint_number" in arguments
