"""SummaryAtEndHook: writes the summaries once, at the end of an evaluation."""

from __future__ import annotations

from typing import Any

from tensorflow.python.summary import summary
from tensorflow.python.summary.writer import writer_cache
from tensorflow.python.training import session_run_hook, training_util

__all__ = ["SummaryAtEndHook"]


class SummaryAtEndHook(session_run_hook.SessionRunHook):  # type: ignore[misc]
    """Writes the summaries once, when the session ends.

    Args:
      log_dir: directory of the events. Only without `summary_writer`.
      summary_writer: `FileWriter` to write with.
      summary_op: the serialised summary, a string tensor. None: all summaries of the graph.
      feed_dict: dictionary to feed when the summary is run.

    Raises:
      ValueError: there is neither `log_dir` nor `summary_writer`.
    """

    def __init__(
        self, log_dir: Any = None, summary_writer: Any = None, summary_op: Any = None, feed_dict: Any = None
    ) -> None:
        if log_dir is None and summary_writer is None:
            raise ValueError("One of log_dir or summary_writer should be used.")
        self._log_dir = log_dir
        self._summary_writer = summary_writer
        self._summary_op = summary_op
        self._replace_summary_op = summary_op is None
        self._feed_dict = feed_dict
        self._global_step: Any = None

    def begin(self) -> None:
        """Merges the summaries of the graph, and finds the global step."""
        if self._replace_summary_op:
            self._summary_op = summary.merge_all()
        self._global_step = training_util.get_or_create_global_step()

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Opens the events."""
        if self._summary_writer is None and self._log_dir:
            self._summary_writer = writer_cache.FileWriterCache.get(self._log_dir)

    def end(self, session: Any) -> None:
        """Writes the summaries."""
        if self._summary_op is not None:
            step = training_util.global_step(session, self._global_step)
            text = session.run(self._summary_op, self._feed_dict)
            if self._summary_writer:
                self._summary_writer.add_summary(text, step)
        if self._summary_writer:
            self._summary_writer.flush()
