"""Monitors that end training."""

from __future__ import annotations

from typing import Any

import numpy as np
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import basic_session_run_hooks

from fastsup.compat.contrib.learn.monitors.base import BaseMonitor, EveryN, extract_output

__all__ = ["NanLoss", "StopAtStep"]


class StopAtStep(BaseMonitor):
    """Ends training after a number of steps, or at a step.

    Args:
      num_steps: number of steps; or
      last_step: the global step of the last one.

    Raises:
      ValueError: both are given, or none.
    """

    def __init__(self, num_steps: int | None = None, last_step: int | None = None) -> None:
        super().__init__()
        if num_steps is None and last_step is None:
            raise ValueError("One of num_steps or last_step must be specified.")
        if num_steps is not None and last_step is not None:
            raise ValueError("Only one of num_steps or last_step can be specified.")
        self._num_steps: Any = num_steps
        self._last_step: Any = last_step

    @property
    def run_on_all_workers(self) -> bool:
        """True: each worker ends."""
        return True

    def step_begin(self, step: Any) -> list[Any]:
        """Finds the last step, before the first one."""
        super().step_begin(step)
        if self._last_step is None:
            self._last_step = step + self._num_steps - 1
        return []

    def step_end(self, step: Any, output: Any) -> bool:
        """Ends training after the last step."""
        super().step_end(step, output)
        return bool(step >= self._last_step)


class NanLoss(EveryN):
    """Ends training, or fails, when the loss is NaN.

    Args:
      loss_tensor: the loss, a scalar tensor.
      every_n_steps: number of steps from one check to the next.
      fail_on_nan_loss: True for an error, False for a warning and the end of training.
    """

    def __init__(self, loss_tensor: Any, every_n_steps: int = 100, fail_on_nan_loss: bool = True) -> None:
        super().__init__(every_n_steps=every_n_steps)
        self._loss_tensor = loss_tensor
        self._fail_on_nan_loss = fail_on_nan_loss

    def every_n_step_begin(self, step: Any) -> list[Any]:
        """Asks for the loss."""
        return [self._loss_tensor]

    def every_n_step_end(self, step: Any, outputs: Any) -> bool | None:
        """Checks the loss.

        Raises:
          NanLossDuringTrainingError: it is NaN.
        """
        if not np.isnan(extract_output(outputs, self._loss_tensor)):
            return None
        message = "Model diverged with loss = NaN."
        if self._fail_on_nan_loss:
            logging.error(message)
            raise basic_session_run_hooks.NanLossDuringTrainingError
        logging.warning(message)
        return True
