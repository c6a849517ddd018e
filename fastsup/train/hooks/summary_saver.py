"""SummarySaverHook: writes summaries."""

from __future__ import annotations

from typing import Any

from tensorflow.core.util.event_pb2 import SessionLog
from tensorflow.python.training import basic_session_run_hooks as tf_hooks

from fastsup.events.summary_buffer import buffer_for, flush_summaries
from fastsup.train.hooks.global_step_hook import NextStepHook, check_one_interval, compiled_timer
from fastsup.train.hooks.last_writer import LastWriter

__all__ = ["SummarySaverHook"]


class SummarySaverHook(NextStepHook, tf_hooks.SummarySaverHook):  # type: ignore[misc]
    """Writes summaries every N steps or seconds.

    Args:
      save_steps: global steps between two summaries; or
      save_secs: seconds between two summaries. Exactly one of the two.
      output_dir: directory of the event file; or
      summary_writer: `tf.compat.v1.summary.FileWriter` to use.
      scaffold: `Scaffold` whose `summary_op` to fetch; or
      summary_op: string tensor with a serialised Summary, or a list of such tensors. Exactly one of the two.

    Raises:
      TypeError: an interval isn't a number.
      ValueError: both or neither of a pair were given.
    """

    _NAME = "SummarySaverHook"
    _schedule_reads = NextStepHook._schedule_reads | {"_summary_op", "_scaffold"}
    _request_summary: bool
    _summary_writer: Any

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str | None = None,
        summary_writer: Any = None,
        scaffold: Any = None,
        summary_op: Any = None,
    ) -> None:
        check_one_interval(save_steps=save_steps, save_secs=save_secs)
        super().__init__(save_steps, save_secs, output_dir, summary_writer, scaffold, summary_op)
        self._timer: Any = compiled_timer(self._timer)
        self._last_writer = LastWriter()
        # Only a session that computes the schedule also calls `_before_end`, which flushes the buffer.
        self._buffers_summaries = False

    def before_run(self, run_context: Any) -> Any:
        self._last_writer.note_request()
        return super().before_run(run_context)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if not self._summary_writer:
            return
        results = run_values.results
        step = results["global_step"] + 1
        asked_after = self._last_writer.asked_after
        # Another thread's run may have asked, and not this one.
        is_due = self._request_summary and ("summary" in results or self._get_summary_op() is None)
        if is_due or self._next_step is None:
            step = self._step_after_run(run_context.session)
        if self._next_step is None:
            self._summary_writer.add_session_log(SessionLog(status=SessionLog.START), step)
        if is_due and not self._last_writer.is_another(asked_after):
            self._last_writer.note_write()
            self._timer.update_last_triggered_step(step)
            self._write_summaries(results.get("summary", ()), step)
        self._next_step = step + 1

    def _write_summaries(self, summaries: Any, step: Any) -> None:
        buffer = buffer_for(self._summary_writer) if self._buffers_summaries else None
        if buffer is None:
            flush_summaries(self._summary_writer)
        for summary in summaries:
            (self._summary_writer.add_summary if buffer is None else buffer.add)(summary, step)

    def end(self, session: Any = None) -> None:
        flush_summaries(self._summary_writer)
        super().end(session)

    def _before_end(self) -> None:
        flush_summaries(self._summary_writer)

    def _schedule(self, run: int, step_read: Any) -> bool:
        self._buffers_summaries = True
        if self._next_step is not None and self._get_summary_op() is None:
            return True  # Without a summary op the hook writes nothing after its first run.
        return super()._schedule(run, step_read)
