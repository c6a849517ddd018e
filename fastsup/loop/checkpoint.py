"""The hook that saves checkpoints, with a function or manager of the program's."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable
from typing import Any

from fastsup.common import stop_signals
from fastsup.core.checks import check_flag, check_no_pattern
from fastsup.loop.managers import NO_ASYNC, ManagedSaves, manager_in
from fastsup.loop.periodic import PeriodicHook

_logger = logging.getLogger("fastsup")


class CheckpointHook(PeriodicHook):
    """Saves checkpoints at intervals, and at the end of the loop.

    A loop that ends with an error saves no last checkpoint: the error may come from the values that it would save.

    A checkpoint of TensorFlow's is on the disk before an older one is deleted.

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
      TypeError: `save` can't be called with one argument and has no such method, `directory` is given for something
        else than a `tf.train.Checkpoint`, `async_save` for something that isn't TensorFlow's, or an interval isn't a
        number.
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
        if callable(save):
            _check_takes_step(save)
        self._saves = None if callable(save) else ManagedSaves(save, async_save)
        if async_save and self._saves is None:
            raise TypeError(NO_ASYNC.format(save))
        self.manager: Any = None if self._saves is None else self._saves.manager
        # An object of the program's own may keep its checkpoints elsewhere.
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
        self._save(loop.global_step)
        self.last_saved_step = loop.global_step

    def end(self, loop: Any) -> None:
        try:
            self._wait_for_the_last_write()
        except BaseException:
            # The checkpoint that couldn't be written may have been that of the last step.
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
        # What is raised here would hide why training has failed.
        try:
            self._wait_for_the_last_write()
        except Exception as write_error:
            _logger.error("A checkpoint in %s could not be written: %s", self.manager.directory, write_error)

    def _wait_for_the_last_write(self) -> None:
        if self._saves is not None:
            self._saves.wait()


def _check_takes_step(save: Callable[..., Any]) -> None:
    """Raises TypeError for a function that can't be called with the global step alone."""
    try:
        signature = inspect.signature(save)
    except (TypeError, ValueError):
        return  # Of a function in C, which doesn't say what it takes.
    try:
        signature.bind(0)
    except TypeError as error:
        raise TypeError(
            f"save must take the global step as its one argument, got {save!r} with the arguments {signature}: {error}."
        ) from None
