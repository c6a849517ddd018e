"""The events of a Supervisor: the graph, summaries, and the log of sessions and checkpoints."""

from __future__ import annotations

from typing import Any

from tensorflow.core.util import event_pb2
from tensorflow.python.summary import summary as tf_summary
from tensorflow.python.training import training_util

from fastsup.events.graph_text import write_graph_as_text
from fastsup.train.supervisor.graph_elements import SupervisorElements

__all__ = ["SupervisorEvents"]

_SessionLog = event_pb2.SessionLog


class SupervisorEvents(SupervisorElements):
    """Base of Supervisor: owns the summary writer."""

    _meta_graph_def: Any

    def _init_summary_writer(self, summary_writer: Any, make_default: bool) -> None:
        """Sets the writer of a chief: the given one, or one for `logdir` if `make_default`."""
        self._graph_added_to_summary = False
        self._owns_summary_writer = make_default
        self._summary_writer: Any = None
        if self._is_chief and not make_default:
            self._summary_writer = summary_writer
        elif self._logdir:
            self._summary_writer = tf_summary.FileWriter(self._logdir)

    @property
    def summary_writer(self) -> Any:
        """The chief's writer of events, or None."""
        return self._summary_writer

    def summary_computed(self, sess: Any, summary: Any, global_step: Any = None) -> None:
        """Writes a summary to the event file.

        Args:
          sess: session in which the global step is read.
          summary: a Summary, or a serialised one.
          global_step: the step of the summary. None: the present global step.

        Raises:
          TypeError: `summary` is no summary.
          RuntimeError: there is no summary writer.
        """
        if not self._summary_writer:
            raise RuntimeError("Writing a summary requires a summary writer.")
        if global_step is None and self.global_step is not None:
            # A thread without a default graph executes eagerly under TF 2 behaviour.
            with self._graph.as_default():
                global_step = training_util.global_step(sess, self.global_step)
        self._summary_writer.add_summary(summary, global_step)

    SummaryComputed = summary_computed

    def _write_graph(self) -> None:
        writer = self._summary_writer
        if self._logdir:
            write_graph_as_text(self._graph.as_graph_def(add_shapes=True), self._logdir, "graph.pbtxt")
        if not writer or self._graph_added_to_summary:
            return
        writer.add_graph(self._graph)
        writer.add_meta_graph(self._meta_graph_def)
        self._graph_added_to_summary = True

    def _log_session_start(self, step: int) -> None:
        # It tells readers to discard the later steps of an earlier run.
        self._summary_writer.add_session_log(_SessionLog(status=_SessionLog.START), step)

    def _log_checkpoint(self, path: Any, step: int) -> None:
        self._summary_writer.add_session_log(_SessionLog(status=_SessionLog.CHECKPOINT, checkpoint_path=path), step)

    def _close_summary_writer(self) -> None:
        writer = self._summary_writer
        if not writer:
            return
        # A closed FileWriter writes nothing and warns of each event.
        if getattr(writer, "_closed", None) is not True:
            # Without a step: the session in which it could be read may be closed.
            writer.add_session_log(_SessionLog(status=_SessionLog.STOP))
            writer.close()
        # A reopened writer begins another file, which needs the graph too.
        self._graph_added_to_summary = False
