"""CheckpointSaverHook, which saves checkpoints while the step waits or in the background."""

from __future__ import annotations

from typing import Any

from tensorflow.core.util.event_pb2 import SessionLog
from tensorflow.python.framework import errors, meta_graph, ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import basic_session_run_hooks as tf_hooks
from tensorflow.python.training import training_util

from fastsup.checkpoint.directory import directory_argument
from fastsup.checkpoint.durable import saving
from fastsup.checkpoint.writer import CheckpointWriter, call_after_save, call_before_save
from fastsup.common import stop_signals
from fastsup.common.interpreter_end import no_interpreter_exit
from fastsup.core.checks import check_flag
from fastsup.core.errors import end_all_hooks
from fastsup.events.graph_text import GraphWriting
from fastsup.events.writers import flush_summaries
from fastsup.runtime.graph.variable_sharing import add_reads_without_copy
from fastsup.runtime.session import Session
from fastsup.train.hooks.bases import GlobalStepHook, check_one_interval, compiled_timer

__all__ = ["CheckpointSaverHook", "TFCheckpointSaverHook"]

# TensorFlow's class, even if a program replaces its name later.
TFCheckpointSaverHook: Any = tf_hooks.CheckpointSaverHook


class CheckpointSaverHook(GlobalStepHook, tf_hooks.CheckpointSaverHook):  # type: ignore[misc]
    """Saves a checkpoint after the session is created, then every N seconds or steps, and at the end.

    Args:
      checkpoint_dir: directory of the checkpoints.
      save_secs: seconds between checkpoints. Specify either this or `save_steps`.
      save_steps: global steps between checkpoints.
      saver: `tf.compat.v1.train.Saver` to use. Exclusive with `scaffold`.
      scaffold: `Scaffold` whose saver to use. With neither, the graph's only saver is used.
      checkpoint_basename: base name of the files.
      listeners: `CheckpointSaverListener` objects, called before and after each save.
      save_graph_def: Whether to also write the graph (`graph.pbtxt`, and a `.meta` file for each checkpoint).
      async_save: Whether training continues while a checkpoint is written. A snapshot of the variables is taken between
        two steps, and a thread writes it. The next step raises the errors of the write, and calls the listeners'
        `after_save`. The last checkpoint is written before `end` returns. The snapshot needs additional memory.

    Raises:
      TypeError: If an interval isn't a number, or `checkpoint_dir` isn't a path.
      ValueError: If both or neither of `save_secs` and `save_steps` are given, or both `saver` and `scaffold`.
    """

    _NAME = "CheckpointSaverHook"
    _schedule_reads = frozenset({"_timer", "_global_step_tensor"})

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
        _ends_last: bool = False,
    ) -> None:
        check_one_interval(save_secs=save_secs, save_steps=save_steps)
        check_flag(async_save=async_save)
        checkpoint_dir = directory_argument("checkpoint_dir", checkpoint_dir)
        super().__init__(
            checkpoint_dir, save_secs, save_steps, saver, checkpoint_basename, scaffold, listeners, save_graph_def
        )
        self._timer: Any = compiled_timer(self._timer)
        self._async_save = async_save
        # A monitored session calls this hook's `end` after all other hooks' `end`.
        self._ends_last = _ends_last
        self._checkpoint_writer = CheckpointWriter(when_written=lambda: self._set_written(True))
        # True from the start of a save that fails, or whose `before_save` listener fails, until the next successful
        # save. `end` repeats the save if necessary.
        self._save_failed = False
        # True from the end of a background write until the loop's thread has called the listeners.
        self._written = False

    def begin(self) -> None:
        self._require_global_step()
        for listener in self._listeners:  # Check all listeners before any listener has started.
            if not hasattr(listener, "begin"):
                raise AttributeError(
                    f"{type(listener).__name__!r} object has no attribute 'begin': listeners must be "
                    f"CheckpointSaverListener objects, got {listener!r}."
                )
        super().begin()
        if self._async_save:
            add_reads_without_copy(ops.get_default_graph())

    def after_create_session(self, session: Any, coord: Any) -> None:
        self._before_close()
        if not isinstance(session, Session):
            super().after_create_session(session, coord)
            return
        step = _current_step(session, ops.get_default_graph(), self._global_step_tensor)
        self._write_graph_and_save(session, step)
        self._timer.update_last_triggered_step(step)

    def _write_graph_and_save(self, session: Session, step: Any) -> None:
        graph = ops.get_default_graph()
        with no_interpreter_exit:
            graph_def = graph.as_graph_def(add_shapes=True)
        # Writing the text takes longer than everything else here, so a thread does it.
        writing = GraphWriting(graph_def, self._checkpoint_dir, "graph.pbtxt") if self._save_graph_def else None
        try:
            saver = self._get_saver()
            with no_interpreter_exit:
                meta_graph_def = meta_graph.create_meta_graph_def(
                    graph_def=graph_def, saver_def=saver.saver_def if saver else None
                )
                self._summary_writer.add_graph(graph)
                self._summary_writer.add_meta_graph(meta_graph_def)
            if self._listeners and writing is not None:
                writing.wait()  # A listener may read the file.
            self._save(session, step)
        finally:
            if writing is not None:
                writing.wait()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if self._written and self._finish_background_write(run_context.session):
            run_context.request_stop()
        super().after_run(run_context, run_values)

    def end(self, session: Any) -> None:
        # Don't write in the background here, because the end would have to wait for the write anyway.
        async_save, self._async_save = self._async_save, False
        try:
            ends = [self._finish_background_write, self._save_last]
            end_all_hooks(ends, lambda end: end(session), logging.error, "The end of the saver")
        finally:
            self._async_save = async_save

    def _save_last(self, session: Any) -> None:
        """Saves the last step unless it is already saved, and calls the listeners' `end`."""
        step = session.run(self._global_step_tensor)
        # The timer also counts a failed save.
        if self._save_failed or step != self._timer.last_triggered_step():
            self._save(session, step)
        stop_signals.log_last_save(f"{self._save_path}-{step}")
        end_all_hooks(
            self._listeners, lambda listener: listener.end(session, step), logging.error, "end() of the listener"
        )

    def _save(self, session: Any, step: Any) -> bool:
        flush_summaries(self._summary_writer)
        if not isinstance(session, Session):
            with saving(None):
                return bool(super()._save(session, step))
        self._save_failed = True
        should_stop = self._finish_background_write(session)
        call_before_save(self._listeners, session, step)
        path = self._checkpoint_writer.save(
            session,
            self._get_saver(),
            self._save_path,
            step,
            log_start=lambda: logging.info("Saving checkpoints for %d into %s.", step, self._save_path),
            write_meta_graph=self._save_graph_def,
            in_background=self._async_save,
        )
        self._save_failed = False
        if path is None:
            return should_stop
        return self._announce_checkpoint(session, step) or should_stop

    def _set_written(self, written: bool) -> None:
        # The writing thread also calls this.
        self._written = written
        self._reschedule()

    def _finish_background_write(self, session: Any) -> bool:
        """Waits for the background write, if any. Returns True if a listener requests a stop."""
        try:
            step = self._wait_for_write(session)
        except BaseException:
            self._save_failed = True
            raise
        finally:
            if self._written:
                self._set_written(False)
        return step is not None and self._announce_checkpoint(session, step)

    def _wait_for_write(self, session: Any) -> Any:
        """Returns the step of a background write whose listeners must be called, or None."""
        return self._checkpoint_writer.finish()

    def _announce_checkpoint(self, session: Any, step: Any) -> bool:
        """Writes the checkpoint's event and calls the listeners. Returns True if one of them requests a stop."""
        checkpoint_saved = SessionLog(status=SessionLog.CHECKPOINT, checkpoint_path=self._save_path)
        self._summary_writer.add_session_log(checkpoint_saved, step)
        return call_after_save(self._listeners, session, step)

    def _before_close(self) -> None:
        # Training may have failed, so the session is closed only after the last checkpoint is on the disk.
        if self._checkpoint_writer.wait_and_log():
            self._set_written(False)

    def _schedule(self, run: int, step_read: Any) -> bool:
        if self._written:
            self.due_every_run()
            return True
        # TensorFlow's hook decides on the step after the run. Without a number of steps per run, it assumes a million.
        self._decide_after_run(on_true_step=True)
        return self._counts(step_read) and self._due_with_timer(self._timer)


def _current_step(session: Session, graph: ops.Graph, step_read: Any) -> Any:
    """Reads the global step from the variable, or with the slower guarded read if the variable isn't initialized."""
    variable = training_util.get_global_step(graph)
    if variable is None or step_read is not training_util._get_global_step_read(graph):
        return session.run(step_read)
    try:
        step = session.run(variable)
    except errors.FailedPreconditionError:
        return session.run(step_read)
    if graph.finalized:
        session._read_step_directly(variable)  # This also speeds up the other hooks.
    return step
