"""make_stop_at_checkpoint_step_hook: stops at a global step, in workers once a checkpoint of that step is saved."""

from __future__ import annotations

import time
from typing import Any

from tensorflow.python.platform import tf_logging as logging

from fastsup.core.checks import check_number, is_number
from fastsup.estimator.config.tensorflow_names import v1
from fastsup.estimator.hooks.global_step_reader import GlobalStepReader
from fastsup.estimator.model import trained_model
from fastsup.estimator.model.estimator import check_estimator

__all__ = ["make_stop_at_checkpoint_step_hook"]


class _StopAtCheckpointStepHook(GlobalStepReader):
    """A worker's hook: stops once the newest checkpoint has reached a global step.

    Args:
      model_dir: directory of the checkpoints.
      last_step: the global step.
      wait_after_file_check_secs: seconds to wait after each reading of the directory.

    Raises:
      ValueError: `model_dir` or `last_step` is None.
    """

    def __init__(self, model_dir: Any, last_step: int, wait_after_file_check_secs: float = 30) -> None:
        for name, value in (("last_step", last_step), ("model_dir", model_dir)):
            if value is None:
                raise ValueError(f"{name} must be specified.")
        self._model_dir = model_dir
        self._last_step = last_step
        self._wait_secs = wait_after_file_check_secs

    def begin(self) -> None:
        """Finds the global step.

        Raises:
          RuntimeError: the graph has none.
        """
        super().begin()
        if self._global_step_tensor is None:
            raise RuntimeError("Global step should be created to use StopAtCheckpointStepHook.")

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """At the last step: requests a stop if the checkpoint is there, else waits."""
        step_before_run = run_values.results
        if step_before_run + 1 < self._last_step:
            return
        if trained_model.global_step_of(self._model_dir) < self._last_step:
            time.sleep(self._wait_secs)
        else:
            run_context.request_stop()


def make_stop_at_checkpoint_step_hook(estimator: Any, last_step: int, wait_after_file_check_secs: float = 30) -> Any:
    """Makes a hook that stops training at a global step; in a worker, once a checkpoint of that step is saved.

    Args:
      estimator: the `Estimator` that trains.
      last_step: the global step.
      wait_after_file_check_secs: seconds that a worker waits between two readings of the model directory.

    Returns:
      A `SessionRunHook` to pass to training: that of the chief or that of a worker, by the Estimator's configuration.

    Raises:
      TypeError: `estimator` isn't an Estimator, or another argument isn't a number.
      ValueError: `last_step` is None.
    """
    check_estimator(estimator)
    if last_step is not None:
        check_number("last_step", last_step, "an integer")
        if not last_step > 0:
            logging.warning(
                "last_step=%r isn't positive: training ends after its first step. "
                "See `python -m fastsup docs dropin#estimator`.",
                last_step,
            )
    if not is_number(wait_after_file_check_secs):
        raise TypeError(f"wait_after_file_check_secs must be a number of seconds, got {wait_after_file_check_secs!r}.")
    if estimator.config.is_chief:
        return v1.train.StopAtStepHook(last_step=last_step)
    return _StopAtCheckpointStepHook(estimator.model_dir, last_step, wait_after_file_check_secs)
