"""The standard hooks that read the values of tensors: LoggingTensorHook, NanTensorHook."""

from __future__ import annotations

from typing import Any

import numpy as np
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import basic_session_run_hooks as tf_hooks

from fastsup.core.checks import check_number
from fastsup.train.hooks.bases import TriggerRace, check_one_interval, compiled_timer, info_is_read
from fastsup.train.schedule import ScheduledHook

__all__ = ["LoggingTensorHook", "NanTensorHook"]

# Types of values whose text doesn't depend on NumPy's print options.
_NUMBERS = (np.number, np.bool_, bytes)


class LoggingTensorHook(ScheduledHook, tf_hooks.LoggingTensorHook):  # type: ignore[misc]
    """Logs the values of tensors every N runs or seconds, or at the end.

    Args:
      tensors: dictionary from tags to tensors or names, or an iterable of tensors or names.
      every_n_iter: runs between two lines. Exclusive with `every_n_secs`.
      every_n_secs: seconds between two lines. Both may be None if `at_end` is True.
      at_end: Whether to log at the end of the session.
      formatter: function from a dictionary of tags and values to the line.

    Raises:
      TypeError: If an interval isn't a number.
      ValueError: If both intervals are given, or neither without `at_end`, or `every_n_iter` isn't positive.
    """

    _schedule_reads = frozenset({"_timer"})
    _iter_count: int
    _should_trigger: bool
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
        if every_n_iter is not None and every_n_secs is None:
            check_number("every_n_iter", every_n_iter)
        super().__init__(tensors, every_n_iter, every_n_secs, at_end, formatter)
        self._timer: Any = compiled_timer(self._timer)
        self._last_writer = TriggerRace()

    def before_run(self, run_context: Any) -> Any:
        self._last_writer.note_request()
        return super().before_run(run_context)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        # The run of another thread may have made the request.
        is_due = self._should_trigger and run_values.results is not None
        if is_due and not self._last_writer.is_another(self._last_writer.asked_after):
            self._last_writer.note_write()
            self._log_tensors(run_values.results)
        self._iter_count += 1

    def _schedule(self, run: int, step_read: Any) -> bool:
        if isinstance(self._timer, tf_hooks.NeverTriggerTimer):
            return True
        if not self._due_with_timer(self._timer):
            return False
        if self.next_step is not None:
            # The timer counts the runs of this session and, after a recovery, of earlier sessions.
            due_in = self.next_step - self._iter_count
            self.never_due()
            self.due_at_run(run + max(due_in, 0))
        return True

    def _log_tensors(self, tensor_values: Any) -> None:
        is_read = info_is_read()
        all_numbers = all(isinstance(value, _NUMBERS) for value in tensor_values.values())
        if self._formatter is not None or (is_read and not all_numbers):
            super()._log_tensors(tensor_values)
            return
        # Skip TensorFlow's change of NumPy's print options, which is slow and doesn't change the text of a number.
        elapsed_secs, _ = self._timer.update_last_triggered_step(self._iter_count)
        if not is_read:
            return
        text = ", ".join([f"{tag!s} = {tensor_values[tag]!s}" for tag in self._tag_order])
        if elapsed_secs is None:
            logging.info("%s", text)
        else:
            logging.info("%s (%.3f sec)", text, elapsed_secs)

    def _sync(self, skipped_runs: int, previous_step: int) -> None:
        self._iter_count += skipped_runs


class NanTensorHook(ScheduledHook, tf_hooks.NanTensorHook):  # type: ignore[misc]
    """Raises an error or requests a stop when the loss is NaN.

    Args:
      loss_tensor: the loss, a scalar tensor.
      fail_on_nan_loss: Whether to raise NanLossDuringTrainingError. If False, requests a stop.
    """

    _schedule_reads = frozenset({"_loss_tensor"})
    _loss_tensor: Any

    def _schedule(self, run: int, step_read: Any) -> bool:
        if self._loss_tensor is None:
            return False  # TensorFlow's hook fails in each run.
        self._watch(self._loss_tensor)
        return True
