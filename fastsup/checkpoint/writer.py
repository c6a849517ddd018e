"""The writer of checkpoints that CheckpointSaverHook and Supervisor share, and the calls of a save's listeners."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tensorflow.python.platform import tf_logging as logging

from fastsup.checkpoint.async_save import BackgroundSaver
from fastsup.checkpoint.durable import save_durably, saving
from fastsup.checkpoint.unchanged_checkpoint import UNCHANGED, reuse_unchanged_checkpoint
from fastsup.common.interpreter_end import completed_before_exit
from fastsup.runtime.session import Session

__all__ = ["CheckpointWriter", "call_after_save", "call_before_save"]


class CheckpointWriter:
    """Writes checkpoints one after the other, while the caller waits or in the background.

    The newest checkpoint isn't written again if it already holds the state of the session.

    Args:
      remember_state: whether a checkpoint written here counts as the state of the session until a step changes it. Then
        the next save of the same state doesn't write it again.
      when_written: function without arguments, called in the writing thread when a background write has ended.
    """

    def __init__(
        self,
        remember_state: bool = False,
        when_written: Callable[[], None] | None = None,
    ) -> None:
        self._remember_state = remember_state
        self._when_written = when_written
        self._background: BackgroundSaver | None = None
        self._pending_step: Any = None

    def save(
        self,
        session: Session,
        saver: Any,
        path: Any,
        step: Any,
        log_start: Callable[[], None],
        write_meta_graph: bool | None = None,
        in_background: bool = False,
    ) -> Any:
        """Saves the variables of a session.

        Args:
          session: the session that holds the variables.
          saver: the `tf.compat.v1.train.Saver` that writes them.
          path: path of the checkpoint, without the step.
          step: the global step to name the checkpoint by; None for a name without a step.
          log_start: function without arguments that logs the start of the write. Not called for an unchanged state.
          write_meta_graph: whether a `.meta` file with the graph accompanies the checkpoint. None: the saver's default.
          in_background: whether to return as soon as the variables are copied.

        Returns:
          The path of the checkpoint, with the step; None while it is being written in the background.

        Raises:
          Exception: the error of the saver, or of the background write before this one.
        """
        has_meta_graph = write_meta_graph is not False
        with completed_before_exit, saving(None):
            unchanged = reuse_unchanged_checkpoint(session, saver, path, step, has_meta_graph)
        if unchanged is not None:
            logging.info(UNCHANGED, step, unchanged)
            return unchanged
        log_start()
        if in_background:
            self._background_of(saver).save(session, path, step, has_meta_graph, self._when_written)
            self._pending_step = step
            return None
        # Read before the write: the gate may lose patience and let a step pass.
        passed = session.gate.passed
        with completed_before_exit:
            written = save_durably(saver, session, path, step, write_meta_graph)
        session.saves_ended += 1
        if self._remember_state:
            session._note_checkpoint(written, passed)
        return written

    def prepare(self, session: Session, saver: Any) -> None:
        """Does what a background save does before it looks at the variables, for a caller that then holds steps back.

        Args:
          session: the session that holds the variables.
          saver: the `tf.compat.v1.train.Saver` that writes them.

        Raises:
          Exception: the error of the background write before.
        """
        self._background_of(saver).prepare(session)

    def _background_of(self, saver: Any) -> BackgroundSaver:
        if self._background is None or self._background.saver is not saver:
            self.wait()
            self._background = BackgroundSaver(saver)
        return self._background

    def wait(self) -> Any:
        """Waits for the background write.

        Returns:
          The path of the checkpoint written last in the background; None if there was none.

        Raises:
          Exception: the error of the write. The next call doesn't raise it again.
        """
        return None if self._background is None else self._background.wait()

    def finish(self) -> Any:
        """Waits for the background write, unless an earlier call has done so.

        Returns:
          The step of the checkpoint; None if no write was under way.

        Raises:
          Exception: the error of the write.
        """
        step, self._pending_step = self._pending_step, None
        if step is not None:
            self.wait()
        return step

    def wait_and_log(self) -> bool:
        """Waits for the background write, and logs its error in place of raising it.

        Returns:
          True if the write has failed.
        """
        try:
            self.wait()
        except Exception as error:
            logging.error("The checkpoint of step %s could not be written: %s", self._pending_step, error)
            self._pending_step = None
            return True
        return False


def call_before_save(listeners: Iterable[Any], session: Any, step: Any) -> None:
    """Calls the listeners' `before_save`.

    Args:
      listeners: the `CheckpointSaverListener` objects.
      session: the session that holds the variables.
      step: the global step of the checkpoint.
    """
    logging.info("Calling checkpoint listeners before saving checkpoint %d...", step)
    for listener in listeners:
        listener.before_save(session, step)


def call_after_save(listeners: Iterable[Any], session: Any, step: Any) -> bool:
    """Calls the listeners' `after_save`, all of them.

    Args:
      listeners: the `CheckpointSaverListener` objects.
      session: the session that holds the variables.
      step: the global step of the checkpoint.

    Returns:
      True if a listener has requested a stop.
    """
    logging.info("Calling checkpoint listeners after saving checkpoint %d...", step)
    should_stop = False
    for listener in listeners:
        if listener.after_save(session, step):
            logging.info("A CheckpointSaverListener requested that training be stopped. listener: %s", listener)
            should_stop = True
    return should_stop
