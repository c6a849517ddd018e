"""The hook that saves checkpoints, while the step waits or in the background."""

from __future__ import annotations

from typing import Any

from tensorflow.core.util.event_pb2 import SessionLog
from tensorflow.python.framework import errors, meta_graph, ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import basic_session_run_hooks as tf_hooks
from tensorflow.python.training import training_util

from fastsup.checkpoint.async_save import BackgroundSaver
from fastsup.checkpoint.output_directory import directory_path
from fastsup.checkpoint.unchanged_checkpoint import LEFT_AS_IT_IS, checkpoint_of_now
from fastsup.events.graph_writing import GraphWriting
from fastsup.events.summary_buffer import hand_over
from fastsup.runtime.interpreter_end import uninterrupted
from fastsup.runtime.session import Session
from fastsup.train.hooks.global_step_hook import GlobalStepHook, check_one_interval, own_timer

__all__ = ["CheckpointSaverHook", "TFCheckpointSaverHook"]

# TensorFlow's class, whatever a program binds under its name later.
TFCheckpointSaverHook: Any = tf_hooks.CheckpointSaverHook


class CheckpointSaverHook(GlobalStepHook, tf_hooks.CheckpointSaverHook):  # type: ignore[misc]
    """Saves a checkpoint when the session is made, every N seconds or steps, and at the end.

    Args:
      checkpoint_dir: directory to save to.
      save_secs: seconds between two checkpoints; or
      save_steps: global steps between two checkpoints. Exactly one of the two.
      saver: `tf.compat.v1.train.Saver` to use; or
      scaffold: `Scaffold` whose saver to use. With neither, the graph's one saver.
      checkpoint_basename: base name of the files.
      listeners: `CheckpointSaverListener` objects, called around each save.
      save_graph_def: whether to write the graph too (`graph.pbtxt`, and a `.meta` file for each checkpoint).
      async_save: whether training goes on while a checkpoint is written. The variables are copied between two steps,
        a thread writes the copy. What that raises is raised at the next step; the listeners' `after_save` is called
        there too. The last checkpoint is written before `end` returns. Needs memory for a copy of the variables.

    Raises:
      ValueError: both or neither of save_secs and save_steps, or both saver and scaffold.
    """

    _NAME = "CheckpointSaverHook"
    # Whether its `end` comes after those of all other hooks.
    _ends_last = False

    def __init__(
        self,
        checkpoint_dir: Any,
        save_secs: float | None = None,
        save_steps: int | None = None,
        saver: Any = None,
        checkpoint_basename: str = "model.ckpt",
        scaffold: Any = None,
        listeners: Any = None,
        save_graph_def: bool = True,
        async_save: bool = False,
    ) -> None:
        check_one_interval(save_secs=save_secs, save_steps=save_steps)
        checkpoint_dir = directory_path("checkpoint_dir", checkpoint_dir)
        super().__init__(
            checkpoint_dir, save_secs, save_steps, saver, checkpoint_basename, scaffold, listeners, save_graph_def
        )
        self._timer: Any = own_timer(self._timer)
        self._async_save = async_save
        self._background: BackgroundSaver | None = None
        # The step of the checkpoint that is being written, and whether it is written by now.
        self._step_being_written: Any = None
        self._written = False

    def begin(self) -> None:
        self._require_global_step()
        for listener in self._listeners:
            listener.begin  # noqa: B018  (one without it fails here, as below)
        super().begin()

    def after_create_session(self, session: Any, coord: Any) -> None:
        self._before_close()
        if not isinstance(session, Session):
            super().after_create_session(session, coord)
            return
        graph = ops.get_default_graph()
        step = _step_now(session, graph, self._global_step_tensor)
        with uninterrupted:
            graph_def = graph.as_graph_def(add_shapes=True)
        # The text takes longer than all the rest.
        writing = GraphWriting(graph_def, self._checkpoint_dir, "graph.pbtxt") if self._save_graph_def else None
        try:
            saver = self._get_saver()
            saver_def = saver.saver_def if saver else None
            with uninterrupted:
                self._summary_writer.add_graph(graph)
                self._summary_writer.add_meta_graph(
                    meta_graph.create_meta_graph_def(graph_def=graph_def, saver_def=saver_def)
                )
            if self._listeners and writing is not None:
                writing.wait()  # A listener may look at it.
            self._save(session, step)
        finally:
            if writing is not None:
                writing.wait()
        self._timer.update_last_triggered_step(step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if self._written and self._finish_write(run_context.session):
            run_context.request_stop()
        super().after_run(run_context, run_values)

    def end(self, session: Any) -> None:
        self._finish_write(session)
        in_background, self._async_save = self._async_save, False
        try:
            super().end(session)
        finally:
            self._async_save = in_background

    def _save(self, session: Any, step: Any) -> bool:
        hand_over(self._summary_writer)
        if not isinstance(session, Session):
            return bool(super()._save(session, step))
        should_stop = self._finish_write(session)
        logging.info("Calling checkpoint listeners before saving checkpoint %d...", step)
        for listener in self._listeners:
            listener.before_save(session, step)
        saver = self._get_saver()
        with uninterrupted:
            path = checkpoint_of_now(session, saver, self._save_path, step, self._save_graph_def)
        if path is not None:
            logging.info(LEFT_AS_IT_IS, step, path)
            return self._tell_of_checkpoint(session, step) or should_stop
        logging.info("Saving checkpoints for %d into %s.", step, self._save_path)
        if self._async_save:
            if self._background is None:
                self._background = BackgroundSaver(saver)
            self._background.save(session, self._save_path, step, self._save_graph_def, self._note_written)
            self._step_being_written = step
            return should_stop
        with uninterrupted:
            saver.save(session, self._save_path, global_step=step, write_meta_graph=self._save_graph_def)
        return self._tell_of_checkpoint(session, step) or should_stop

    def _note_written(self) -> None:
        # Called in the thread that writes. Setting it makes a session ask for the schedule again.
        self._written = True

    def _finish_write(self, session: Any) -> bool:
        """Waits for the checkpoint that is being written. Returns whether a listener wants to stop."""
        step, self._step_being_written = self._step_being_written, None
        if step is None or self._background is None:
            return False
        try:
            self._background.wait()
        finally:
            self._written = False
        return self._tell_of_checkpoint(session, step)

    def _tell_of_checkpoint(self, session: Any, step: Any) -> bool:
        """Notes a checkpoint in the event file and tells the listeners. Returns whether one of them wants to stop."""
        self._summary_writer.add_session_log(
            SessionLog(status=SessionLog.CHECKPOINT, checkpoint_path=self._save_path), step
        )
        logging.info("Calling checkpoint listeners after saving checkpoint %d...", step)
        should_stop = False
        for listener in self._listeners:
            if listener.after_save(session, step):
                logging.info("A CheckpointSaverListener requested that training be stopped. listener: %s", listener)
                should_stop = True
        return should_stop

    def _before_close(self) -> None:
        """Has the last checkpoint written before the session is closed, also where training has failed."""
        if self._background is None:
            return
        try:
            self._background.wait()
        except Exception as error:
            logging.error("The checkpoint of step %s could not be written: %s", self._step_being_written, error)
            self._step_being_written = None
            self._written = False

    def _schedule(self, run: int, step_read: Any) -> bool:
        if self._written:
            self.due_every_run()
            return True
        # TensorFlow's looks a million steps ahead, and then at the true step, unless it is told how many to look ahead.
        self._decide_after_run(on_true_step=True)
        return self._counts(step_read) and self._due_with_timer(self._timer)


def _step_now(session: Session, graph: ops.Graph, step_read: Any) -> Any:
    """The global step. It has a value unless the model isn't ready; the guard against that is slow."""
    variable = training_util.get_global_step(graph)
    if variable is None or step_read is not training_util._get_global_step_read(graph):
        return session.run(step_read)
    try:
        step = session.run(variable)
    except errors.FailedPreconditionError:
        return session.run(step_read)
    if graph.finalized:
        session._read_step_directly(variable)  # The other hooks ask for it too.
    return step
