"""The checkpoints of a Supervisor: those of its service, and the last one when a signal ends the run."""

from __future__ import annotations

from typing import Any

from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import training_util

from fastsup.checkpoint.durable import save_durably
from fastsup.checkpoint.writer import CheckpointWriter
from fastsup.common import stop_signals
from fastsup.common.interpreter_end import uninterrupted
from fastsup.runtime.session import Session
from fastsup.train.supervisor.graph_elements import SupervisorElements

__all__ = ["SupervisorSaves"]


class SupervisorSaves(SupervisorElements):
    """Base of Supervisor: saves checkpoints."""

    _save_path: Any

    def _init_saving(self, async_save: bool) -> None:
        self._async_save = async_save
        self._checkpoint_writer = CheckpointWriter(remember_state=True)

    def _save(self, sess: Any, saver: Any, save_path: Any, global_step: Any = None) -> Any:
        """Saves a checkpoint that is named by the step of its variables, and waits until it is written.

        Args:
          sess: the session that holds the variables.
          saver: the Saver.
          save_path: path of the checkpoint, without the step.
          global_step: the tensor or variable that counts steps; None for a name without a step.

        Returns:
          The path of the checkpoint, with the step.
        """

        def log_start() -> None:
            logging.info("Saving checkpoint to path %s", save_path)

        if not isinstance(sess, Session):
            log_start()
            return save_durably(saver, sess, save_path, global_step)
        if self._async_save:
            self._checkpoint_writer.prepare(sess, saver)
        # The gate holds back steps from here on, so the step in the name is that of the variables.
        with uninterrupted, sess.gate:
            step = None if global_step is None else self._read_step(sess, global_step)
            path = self._checkpoint_writer.save(sess, saver, save_path, step, log_start, in_background=self._async_save)
        return self._checkpoint_writer.wait() if path is None else path

    def _read_step(self, sess: Any, global_step: Any) -> int:
        # Fetching the tensor of a variable, unlike the variable, is known to write nothing.
        tensor = self._graph.as_graph_element(global_step)
        return training_util.global_step(sess, tensor)  # type: ignore[no-any-return]

    def _save_on_signal(self, session: Any) -> None:
        """Saves the last state of training when a signal ends the run. The services may still be running."""
        if self._save_path is None or self._saver is None:
            return
        held = stop_signals.holds_signals()
        try:
            # A write that has failed is made up for by this one.
            self._checkpoint_writer.wait_and_log()
            self._save(session, self._saver, self._save_path, global_step=self._global_step)
        finally:
            stop_signals.release(held)
