"""The hook that saves the `tf.train.Checkpoint` of a monitored function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorflow.python.eager import context
from tensorflow.python.platform import tf_logging as logging

from fastsup.events.summary_buffer import flush_summaries
from fastsup.loop.managers import ManagedSaves
from fastsup.train.hooks.checkpoint_saver import CheckpointSaverHook

__all__ = ["FunctionCheckpointHook"]


class FunctionCheckpointHook(CheckpointSaverHook):
    """Saves a `tf.train.Checkpoint` when a CheckpointSaverHook saves the variables of its graph.

    Args:
      manager: the `tf.train.CheckpointManager`.
      restored_step: function without arguments that returns the global step of the checkpoint that was restored last,
        which isn't written again; None if there is none.
      save_secs: seconds between two checkpoints; or
      save_steps: global steps between two checkpoints. Exactly one of the two.
      async_save: whether TensorFlow copies the values and writes them in a thread while training goes on.

    Raises:
      TypeError: an interval isn't a number.
      ValueError: both or neither of `save_secs` and `save_steps` were given.
    """

    def __init__(
        self,
        manager: Any,
        restored_step: Callable[[], int | None],
        save_secs: float | None,
        save_steps: int | None,
        async_save: bool,
    ) -> None:
        name = getattr(manager, "_checkpoint_name", "ckpt")
        super().__init__(
            manager.directory, save_secs, save_steps, checkpoint_basename=name, save_graph_def=False, _ends_last=True
        )
        self._manager = manager
        self._restored_step = restored_step
        self._saves = ManagedSaves(manager, async_save)

    def _write_graph_and_save(self, session: Any, step: Any) -> None:
        if step != self._restored_step():
            self._save(session, step)

    def _save(self, session: Any, step: Any) -> bool:
        flush_summaries(self._summary_writer)
        self._save_failed = True
        self._finish_background_write(session)
        logging.info("Saving checkpoints for %d into %s.", step, self._manager.directory)
        with context.eager_mode():
            if self._saves.save(int(step)):
                session.saves_ended += 1
        self._save_failed = False
        return self._announce_checkpoint(session, step)

    def _wait_for_write(self, session: Any) -> None:
        # The listeners were called when the write began.
        with context.eager_mode():
            if self._saves.wait():
                session.saves_ended += 1

    def end(self, session: Any) -> None:
        super().end(session)
        self._finish_background_write(session)

    def _before_close(self) -> None:
        # Training may have failed: what is raised here would hide that, and keep the session open.
        try:
            with context.eager_mode():
                self._saves.wait()
        except Exception as error:
            logging.error("A checkpoint in %s could not be written: %s", self._manager.directory, error)
