"""The checkpoints of a Supervisor: those of its service, and the last one when a signal ends the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorflow.python.framework import ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import training_util

from fastsup.checkpoint.durable import save_durably
from fastsup.checkpoint.writer import CheckpointWriter
from fastsup.common import stop_signals
from fastsup.common.interpreter_end import completed_before_exit
from fastsup.runtime.session import Session

__all__ = ["Checkpoints"]


class Checkpoints:
    """Saves checkpoints.

    Args:
      graph: the graph of the sessions.
      path: path of the checkpoints, without the step, or None.
      in_background: whether checkpoints are written in the background.
    """

    def __init__(self, graph: ops.Graph, path: str | None, in_background: bool) -> None:
        self._graph = graph
        self.in_background = in_background
        self._writer = CheckpointWriter(remember_state=True)
        self.path = path

    def save(self, sess: Any, saver: Any, save_path: Any, global_step: Any = None) -> Any:
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
        if self.in_background:
            self._writer.prepare(sess, saver)
        # The gate holds back steps from here on, so the step in the name is that of the variables.
        with completed_before_exit, sess.gate:
            step = None if global_step is None else self.read_step(sess, global_step)
            path = self._writer.save(sess, saver, save_path, step, log_start, in_background=self.in_background)
        return self._writer.wait() if path is None else path

    def read_step(self, sess: Any, global_step: Any) -> int:
        """Returns the value of the global step in a session."""
        # Fetching the tensor of a variable, unlike the variable, is known to write nothing.
        tensor = self._graph.as_graph_element(global_step)
        return training_util.global_step(sess, tensor)  # type: ignore[no-any-return]

    def save_last(self, save: Callable[..., Any], sess: Any, saver: Any, global_step: Any) -> None:
        """Saves the last state of training when a signal ends the run. The services may still be running.

        Args:
          save: the Supervisor's method that saves; the other arguments are its.
        """
        if self.path is None or saver is None:
            return
        held = stop_signals.holds_signals()
        try:
            # A write that has failed is made up for by this one.
            self._writer.wait_and_log()
            path = save(sess, saver, self.path, global_step=global_step)
            stop_signals.log_last_save(path or self.path)
        finally:
            stop_signals.release(held)
