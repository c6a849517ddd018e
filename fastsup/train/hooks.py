"""The standard hooks: TensorFlow's callbacks, and beside them the schedule that lets a session leave them out.

Each class inherits what it does from TensorFlow's hook of the same name, so it behaves the same in TensorFlow's
sessions, and is one for `isinstance`. What it adds is when it is next needed, and what it missed till then.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import basic_session_run_hooks as tf_hooks

from fastsup.core import SecondOrStepTimer
from fastsup.train import stop_signals
from fastsup.train.checkpoint_hook import CheckpointSaverHook
from fastsup.train.event_buffer import buffer_for, hand_over
from fastsup.train.global_step_hook import GlobalStepHook, check_one_interval, own_timer
from fastsup.train.scheduled import ScheduledHook

__all__ = [
    "CheckpointSaverHook",
    "GlobalStepWaiterHook",
    "LoggingTensorHook",
    "NanTensorHook",
    "ProfilerHook",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
]


# Between two looks of who waits for a global step, and between two lines in the log about it.
_WAITER_LOOK_SECS = 0.5
_WAITER_LOG_STEPS = 1000

# A step that no run gets to.
_NEVER = 2**63 - 1

# Values whose text NumPy's print options don't change.
_NUMBERS = (np.number, np.bool_, bytes)

# TensorFlow's own, as long as no program or test has put another in its place.
_info = logging.info


def _somebody_reads_the_log() -> bool:
    return logging.info is not _info or logging.get_logger().isEnabledFor(logging.INFO)


class _NextStepHook(GlobalStepHook):
    """A hook that decides before a run, on the step that it foresaw in the run before."""

    _next_step: Any
    _timer: Any

    def _schedule(self, run: int, step_read: Any) -> bool:
        if self._next_step is None:
            self.due_every_run()
            return True
        if not self._counts(step_read) or not self._due_with_timer(self._timer):
            return False
        if self.next_step is not None and self._next_step >= self.next_step:
            # Having seen the true step after a run that added much to it, it knows now that it is due.
            self.due_every_run()
        return True

    def _catch_up(self, skipped_runs: int, stale_step: int) -> None:
        self._next_step = stale_step + 2


class StopAtStepHook(GlobalStepHook, tf_hooks.StopAtStepHook):  # type: ignore[misc]
    """Requests a stop once the global step has reached a step.

    Args:
      num_steps: steps to run after the session was made; or
      last_step: global step to stop at. Exactly one of the two.

    Raises:
      ValueError: both were given, or neither.
    """

    _NAME = "StopAtStepHook"
    _last_step: Any

    def _schedule(self, run: int, step_read: Any) -> bool:
        if self._last_step is None or not self._counts(step_read):
            return False
        try:
            last_step = math.ceil(self._last_step)
        except (OverflowError, ValueError):
            # An infinite one, or NaN.
            last_step = 0 if self._last_step < 0 else _NEVER
        except TypeError:
            return False
        self._decide_after_run()
        self.due_at_step(last_step)
        return True


class StepCounterHook(GlobalStepHook, tf_hooks.StepCounterHook):  # type: ignore[misc]
    """Logs and writes the rate of global steps (tag `global_step/sec`).

    Args:
      every_n_steps: global steps between two measurements; or
      every_n_secs: seconds between two measurements. Exactly one of the two.
      output_dir: directory for the event file; or
      summary_writer: `tf.compat.v1.summary.FileWriter` to use.

    Raises:
      ValueError: both or neither of every_n_steps and every_n_secs.
    """

    # TensorFlow says so five times in the life of a process.
    _STALL_REPORTS = 5
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
        self._timer: Any = own_timer(self._timer)
        self._stalls = 0
        # Only a session that asks for the schedule also calls _leave().
        self._may_collect = False

    def _log_and_record(self, elapsed_steps: Any, elapsed_time: Any, global_step: Any) -> None:
        buffer = buffer_for(self._summary_writer) if self._may_collect else None
        if buffer is None:
            super()._log_and_record(elapsed_steps, elapsed_time, global_step)
            return
        steps_per_sec = elapsed_steps / elapsed_time
        buffer.add((self._summary_tag, steps_per_sec), global_step)
        if _somebody_reads_the_log():
            logging.info("%s: %g", self._summary_tag, steps_per_sec)

    def _leave(self) -> None:
        hand_over(self._summary_writer)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if self._last_global_step is not None and run_values.results == self._last_global_step:
            # The step was read while the run was incrementing it, so being equal proves nothing: look again.
            if run_context.session.run(self._global_step_tensor) == self._last_global_step:
                self._stalls += 1
            else:
                self._last_global_step = None
        super().after_run(run_context, run_values)

    _NAME = "StepCounterHook"

    def _schedule(self, run: int, step_read: Any) -> bool:
        self._may_collect = True
        if self._stalls < self._STALL_REPORTS:
            self._watch_stall()
        # Told of several steps a run, it looks ahead as far as that.
        self._decide_after_run(on_true_step=self._steps_per_run != 1)
        return self._counts(step_read) and self._due_with_timer(self._timer)

    def _catch_up(self, skipped_runs: int, stale_step: int) -> None:
        self._last_global_step = stale_step


class SummarySaverHook(_NextStepHook, tf_hooks.SummarySaverHook):  # type: ignore[misc]
    """Writes summaries every N steps or seconds.

    Args:
      save_steps: global steps between two summaries; or
      save_secs: seconds between two summaries. Exactly one of the two.
      output_dir: directory for the event file; or
      summary_writer: `tf.compat.v1.summary.FileWriter` to use.
      scaffold: `Scaffold` whose summary_op to fetch; or
      summary_op: string tensor with a serialised Summary, or a list of them. Exactly one of the two.

    Raises:
      ValueError: both or neither of a pair.
    """

    _summary_writer: Any

    def after_run(self, run_context: Any, run_values: Any) -> None:
        summaries = run_values.results.get("summary")
        buffer = buffer_for(self._summary_writer) if self._may_collect else None
        if buffer is None or not summaries or self._next_step is None:
            if summaries:
                hand_over(self._summary_writer)
            super().after_run(run_context, run_values)
            return
        global_step = self._step_after_run(run_context.session)
        self._timer.update_last_triggered_step(global_step)
        for summary in summaries:
            buffer.add(summary, global_step)
        self._next_step = global_step + 1

    def end(self, session: Any = None) -> None:
        hand_over(self._summary_writer)
        super().end(session)

    def _leave(self) -> None:
        hand_over(self._summary_writer)

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
        self._timer: Any = own_timer(self._timer)
        # Only a session that asks for the schedule also calls _leave().
        self._may_collect = False

    _NAME = "SummarySaverHook"

    def _schedule(self, run: int, step_read: Any) -> bool:
        self._may_collect = True
        if self._next_step is not None and self._get_summary_op() is None:
            return True  # Having said that the session has started, it has nothing to write.
        return super()._schedule(run, step_read)


class ProfilerHook(_NextStepHook, tf_hooks.ProfilerHook):  # type: ignore[misc]
    """Writes a Chrome trace (`timeline-<step>.json`) every N steps or seconds.

    Args:
      save_steps: global steps between two traces; or
      save_secs: seconds between two traces. Exactly one of the two.
      output_dir: directory for the files. Defaults to the current one.
      show_dataflow: whether arrows connect the producers and consumers of tensors.
      show_memory: whether to add the sizes and lifetimes of tensors.

    Raises:
      ValueError: both or neither of save_steps and save_secs.
    """

    _NAME = "ProfilerHook"
    _schedule = _NextStepHook._schedule
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
        SecondOrStepTimer(save_secs, save_steps)  # Refuses both or neither, before there is a file.
        super().__init__(save_steps, save_secs, output_dir, show_dataflow, show_memory)
        self._timer: Any = own_timer(self._timer)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if self._request_summary:
            hand_over(self._file_writer)
        super().after_run(run_context, run_values)


class LoggingTensorHook(ScheduledHook, tf_hooks.LoggingTensorHook):  # type: ignore[misc]
    """Logs tensors every N runs or seconds, or at the end.

    Args:
      tensors: dictionary from tags to tensors or names, or an iterable of tensors or names.
      every_n_iter: runs between two logs; or
      every_n_secs: seconds between two logs. Exactly one of the two, unless only `at_end` is wanted.
      at_end: whether to log at the end of the session.
      formatter: function from a dictionary of tags and values to the text to log.

    Raises:
      ValueError: the intervals are both given, or neither without `at_end`, or `every_n_iter` isn't positive.
    """

    _iter_count: int
    _tag_order: Any

    def __init__(
        self,
        tensors: Any,
        every_n_iter: int | None = None,
        every_n_secs: float | None = None,
        at_end: bool = False,
        formatter: Any = None,
    ) -> None:
        check_one_interval(every_n_secs=every_n_secs)
        super().__init__(tensors, every_n_iter, every_n_secs, at_end, formatter)
        self._timer: Any = own_timer(self._timer)

    def _schedule(self, run: int, step_read: Any) -> bool:
        if isinstance(self._timer, tf_hooks.NeverTriggerTimer):
            return True
        if not self._due_with_timer(self._timer):
            return False
        if self.next_step is not None:
            # The timer counts runs, not global steps: of this session, and of those before it if it was recovered.
            due_in = self.next_step - self._iter_count
            self.never_due()
            self.due_at_run(run + max(due_in, 0))
        return True

    def _log_tensors(self, tensor_values: Any) -> None:
        is_read = _somebody_reads_the_log()
        all_numbers = all(isinstance(value, _NUMBERS) for value in tensor_values.values())
        if self._formatter is not None or (is_read and not all_numbers):
            super()._log_tensors(tensor_values)
            return
        # As TensorFlow's, but for NumPy's print options, which don't change the text of a number: setting them takes
        # longer than making it.
        elapsed_secs, _ = self._timer.update_last_triggered_step(self._iter_count)
        if not is_read:
            return
        text = ", ".join([f"{tag!s} = {tensor_values[tag]!s}" for tag in self._tag_order])
        if elapsed_secs is None:
            logging.info("%s", text)
        else:
            logging.info("%s (%.3f sec)", text, elapsed_secs)

    def _catch_up(self, skipped_runs: int, stale_step: int) -> None:
        self._iter_count += skipped_runs


class NanTensorHook(ScheduledHook, tf_hooks.NanTensorHook):  # type: ignore[misc]
    """Fails, or stops, when the loss is NaN.

    Args:
      loss_tensor: the loss.
      fail_on_nan_loss: whether to raise NanLossDuringTrainingError; else a stop is requested.
    """

    _loss_tensor: Any

    def _schedule(self, run: int, step_read: Any) -> bool:
        if self._loss_tensor is None:
            return False  # What becomes of that, TensorFlow's says in each run.
        self._watch(self._loss_tensor)
        return True


class GlobalStepWaiterHook(ScheduledHook, tf_hooks.GlobalStepWaiterHook):  # type: ignore[misc]
    """Holds the first run back until the global step has reached a step, or a signal ends the session.

    Args:
      wait_until_step: the step to wait for.
    """

    _global_step_tensor: Any
    _wait_until_step: int
    _worker_is_started: bool

    def before_run(self, run_context: Any) -> None:
        """Waits, before the first run."""
        if not self._worker_is_started and self._wait_until_step > 0:
            logging.info("Waiting for global step %d before starting training.", self._wait_until_step)
            self._wait(run_context)
        self._worker_is_started = True

    def _wait(self, run_context: Any) -> None:
        logged_step = 0
        while True:
            step = run_context.session.run(self._global_step_tensor)
            # A signal is raised at the end of the run, so let there be one.
            if step >= self._wait_until_step or stop_signals.has_come() or not self._may_come(run_context, step):
                return
            if step - logged_step > _WAITER_LOG_STEPS:
                logging.info(
                    "Waiting for global step %d before starting training. Current step is %d.",
                    self._wait_until_step,
                    step,
                )
                logged_step = step
            time.sleep(_WAITER_LOOK_SECS)

    def _may_come(self, run_context: Any, step: Any) -> bool:
        """Whether to wait on, training being at this step. Subclasses may know better."""
        return True

    def _schedule(self, run: int, step_read: Any) -> bool:
        if not self._worker_is_started:
            self.due_every_run()
        return True
