"""StepCounterHook: measures the rate of global steps."""

from __future__ import annotations

from typing import Any

from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import basic_session_run_hooks as tf_hooks

from fastsup.events.summary_buffer import buffer_for, flush_summaries
from fastsup.train.hooks.global_step_hook import GlobalStepHook, check_one_interval, compiled_timer
from fastsup.train.hooks.info_log import info_is_read

__all__ = ["StepCounterHook"]


class StepCounterHook(GlobalStepHook, tf_hooks.StepCounterHook):  # type: ignore[misc]
    """Measures the global steps per second, and writes them to the log and to an event file (tag `global_step/sec`).

    Args:
      every_n_steps: global steps between two measurements; or
      every_n_secs: seconds between two measurements. Exactly one of the two.
      output_dir: directory of the event file; or
      summary_writer: `tf.compat.v1.summary.FileWriter` to use.

    Raises:
      TypeError: an interval isn't a number.
      ValueError: both or neither of `every_n_steps` and `every_n_secs` were given.
    """

    _NAME = "StepCounterHook"
    # TensorFlow warns of a stalled global step five times in a process.
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
        # A program may have set several steps per run: the hook then needs the true step.
        self._decide_after_run(on_true_step=self._steps_per_run != 1)
        return self._counts(step_read) and self._due_with_timer(self._timer)

    def _sync(self, skipped_runs: int, previous_step: int) -> None:
        self._last_global_step = previous_step
