"""NanTensorHook: ends training when the loss is NaN."""

from __future__ import annotations

from typing import Any

from tensorflow.python.training import basic_session_run_hooks as tf_hooks

from fastsup.train.scheduler.scheduled_hook import ScheduledHook

__all__ = ["NanTensorHook"]


class NanTensorHook(ScheduledHook, tf_hooks.NanTensorHook):  # type: ignore[misc]
    """Raises an error, or requests a stop, when the loss is NaN.

    Args:
      loss_tensor: the loss, a scalar tensor.
      fail_on_nan_loss: whether to raise NanLossDuringTrainingError. False: request a stop.
    """

    _schedule_reads = frozenset({"_loss_tensor"})
    _loss_tensor: Any

    def _schedule(self, run: int, step_read: Any) -> bool:
        if self._loss_tensor is None:
            return False  # TensorFlow's hook fails in each run.
        self._watch(self._loss_tensor)
        return True
