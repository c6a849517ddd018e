"""The standard hooks that write event files and traces: SummarySaverHook, StepCounterHook, ProfilerHook."""

from __future__ import annotations

from typing import Any

from tensorflow.core.util.event_pb2 import SessionLog
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import basic_session_run_hooks as tf_hooks

from fastsup.core import SecondOrStepTimer
from fastsup.events.writers import buffer_for, flush_summaries
from fastsup.train.hooks.bases import (
    GlobalStepHook,
    NextStepHook,
    TriggerRace,
    check_one_interval,
    compiled_timer,
    info_is_read,
)

__all__ = ["ProfilerHook", "StepCounterHook", "SummarySaverHook"]


class SummarySaverHook(NextStepHook, tf_hooks.SummarySaverHook):  # type: ignore[misc]
    """Writes summaries every N steps or seconds.

    Args:
      save_steps: global steps between summaries. Specify either this or `save_secs`.
      save_secs: seconds between summaries.
      output_dir: directory of the event file. Exclusive with `summary_writer`.
      summary_writer: `tf.compat.v1.summary.FileWriter` to use.
      scaffold: `Scaffold` whose `summary_op` to fetch. Specify either this or `summary_op`.
      summary_op: string tensor with a serialized Summary, or a list of such tensors.

    Raises:
      TypeError: If an interval isn't a number.
      ValueError: If both or neither arguments of a pair are given.
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
        self._last_writer = TriggerRace()
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
        # Another thread's run may have made the request.
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


class StepCounterHook(GlobalStepHook, tf_hooks.StepCounterHook):  # type: ignore[misc]
    """Measures the global steps per second, and writes them to the log and an event file (tag `global_step/sec`).

    Args:
      every_n_steps: global steps between measurements. Specify either this or `every_n_secs`.
      every_n_secs: seconds between measurements.
      output_dir: directory of the event file. Exclusive with `summary_writer`.
      summary_writer: `tf.compat.v1.summary.FileWriter` to use.

    Raises:
      TypeError: If an interval isn't a number.
      ValueError: If both or neither of `every_n_steps` and `every_n_secs` are given.
    """

    _NAME = "StepCounterHook"
    # TensorFlow warns about a stalled global step five times per process.
    _STALL_REPORTS = 5
    _schedule_reads = frozenset({"_timer", "_global_step_tensor", "_steps_per_run"})
    _last_global_step: Any
    _steps_per_run: int
    _summary_tag: str
    _summary_writer: Any

    def __init__(
        self,
        every_n_steps: int | None = 100,
        every_n_secs: float | None = None,
        output_dir: str | None = None,
        summary_writer: Any = None,
    ) -> None:
        check_one_interval(every_n_steps=every_n_steps, every_n_secs=every_n_secs)
        super().__init__(every_n_steps, every_n_secs, output_dir, summary_writer)
        self._timer: Any = compiled_timer(self._timer)
        self._stalls = 0
        # Only a session that computes the schedule also calls `_before_end`, which flushes the buffer.
        self._buffers_summaries = False

    def _log_and_record(self, elapsed_steps: Any, elapsed_time: Any, global_step: Any) -> None:
        buffer = buffer_for(self._summary_writer) if self._buffers_summaries else None
        if buffer is None:
            super()._log_and_record(elapsed_steps, elapsed_time, global_step)
            return
        steps_per_sec = elapsed_steps / elapsed_time
        buffer.add((self._summary_tag, steps_per_sec), global_step)
        if info_is_read():
            logging.info("%s: %g", self._summary_tag, steps_per_sec)

    def _before_end(self) -> None:
        flush_summaries(self._summary_writer)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if self._last_global_step is not None and run_values.results == self._last_global_step:
            # The run's fetch may have read the step before the increment, so only another read proves a stall.
            if run_context.session.run(self._global_step_tensor) == self._last_global_step:
                self._stalls += 1
                self._reschedule()
            else:
                self._last_global_step = None
        super().after_run(run_context, run_values)

    def _schedule(self, run: int, step_read: Any) -> bool:
        self._buffers_summaries = True
        if self._stalls < self._STALL_REPORTS:
            self._watch_stall()
        # A program may have set several steps per run. The hook then needs the true step.
        self._decide_after_run(on_true_step=self._steps_per_run != 1)
        return self._counts(step_read) and self._due_with_timer(self._timer)

    def _sync(self, skipped_runs: int, previous_step: int) -> None:
        self._last_global_step = previous_step


class ProfilerHook(NextStepHook, tf_hooks.ProfilerHook):  # type: ignore[misc]
    """Writes a Chrome trace (`timeline-<step>.json`) every N steps or seconds.

    Args:
      save_steps: global steps between two traces. Specify either this or `save_secs`.
      save_secs: seconds between two traces.
      output_dir: directory of the traces. Defaults to the current directory.
      show_dataflow: Whether to draw arrows from producers to consumers of tensors.
      show_memory: Whether to show the sizes and lifetimes of tensors.

    Raises:
      TypeError: If an interval isn't a number.
      ValueError: If both or neither of `save_steps` and `save_secs` are given.
    """

    _NAME = "ProfilerHook"
    _schedule = NextStepHook._schedule
    _file_writer: Any
    _request_summary: bool

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str = "",
        show_dataflow: bool = True,
        show_memory: bool = False,
    ) -> None:
        check_one_interval(save_steps=save_steps, save_secs=save_secs)
        SecondOrStepTimer(save_secs, save_steps)  # This refuses both or neither, before any file is created.
        super().__init__(save_steps, save_secs, output_dir, show_dataflow, show_memory)
        self._timer: Any = compiled_timer(self._timer)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if self._request_summary:
            flush_summaries(self._file_writer)
        super().after_run(run_context, run_values)
