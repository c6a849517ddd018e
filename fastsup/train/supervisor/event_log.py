"""The events of a Supervisor: the graph, summaries, and the log of sessions and checkpoints."""

from __future__ import annotations

from typing import Any

from tensorflow.core.util import event_pb2
from tensorflow.python.framework import ops
from tensorflow.python.platform import tf_logging as logging

from fastsup.events.graph_text import write_graph_as_text

__all__ = ["EventLog"]

_SessionLog = event_pb2.SessionLog


class EventLog:
    """Writes the events of a Supervisor.

    Args:
      graph: the graph of the sessions.
      meta_graph_def: the MetaGraphDef of the graph.
      logdir: directory for the graph as text, or None.
      writer: the summary writer, or None.
      owns_writer: whether the writer was made for this log.
    """

    def __init__(self, graph: ops.Graph, meta_graph_def: Any, logdir: Any, writer: Any, owns_writer: bool) -> None:
        self._graph = graph
        self._meta_graph_def = meta_graph_def
        self._logdir = logdir
        self.owns_writer = owns_writer
        self.writer = writer
        self.has_graph: bool = False

    def write_graph(self) -> None:
        """Writes the graph to the directory and, once for each event file, to the events."""
        if self._logdir:
            write_graph_as_text(self._graph.as_graph_def(add_shapes=True), self._logdir, "graph.pbtxt")
        if not self.writer or self.has_graph:
            return
        self.writer.add_graph(self._graph)
        self.writer.add_meta_graph(self._meta_graph_def)
        self.has_graph = True

    def log_session_start(self, step: int) -> None:
        """Tells readers to discard the later steps of an earlier run."""
        self.writer.add_session_log(_SessionLog(status=_SessionLog.START), step)

    def log_checkpoint(self, path: Any, step: int) -> None:
        """Notes that a checkpoint was saved."""
        self.writer.add_session_log(_SessionLog(status=_SessionLog.CHECKPOINT, checkpoint_path=path), step)

    def close(self) -> None:
        """Logs the end of the session and closes the event file."""
        writer = self.writer
        if not writer:
            return
        # A closed FileWriter writes nothing and warns of each event.
        if getattr(writer, "_closed", None) is not True:
            # Without a step: the session in which it could be read may be closed.
            writer.add_session_log(_SessionLog(status=_SessionLog.STOP))
            writer.close()
        # A reopened writer begins another file, which needs the graph too.
        self.has_graph = False

    def close_after_error(self) -> None:
        """Closes the event file, and only logs an error: it is often a consequence of the one that is raised."""
        try:
            self.close()
        except Exception as error:
            logging.warning("The summary writer could not be closed: %s", error)
