"""ValidationMonitor: evaluates during training, and ends it when the model gets no better."""

from __future__ import annotations

import copy
import time
from typing import Any

from tensorflow.python.checkpoint import checkpoint_management
from tensorflow.python.platform import tf_logging as logging

from fastsup.compat.contrib.learn.monitors.base import EveryN
from fastsup.estimator.model.estimator import EstimatorV1

__all__ = ["ValidationMonitor"]


class ValidationMonitor(EveryN):
    """Evaluates new checkpoints during training.

    Args:
      x: data, for an estimator of the older kind.
      y: labels of `x`.
      input_fn: function that returns the evaluation data.
      batch_size: size of the batches of `x`.
      eval_steps: number of batches. None: until the data ends.
      every_n_steps: number of steps from one check for a new checkpoint to the next.
      metrics: metrics, for an estimator of the older kind.
      hooks: hooks for the evaluation.
      early_stopping_rounds: number of steps without a better metric after which training ends. None: it doesn't.
      early_stopping_metric: name of that metric.
      early_stopping_metric_minimize: True if a smaller value is better.
      name: name of the evaluation.
      check_interval_secs: minimum seconds from one check to the next. None: 0.

    Raises:
      ValueError: there is neither `x` nor `input_fn`.
    """

    def __init__(
        self,
        x: Any = None,
        y: Any = None,
        input_fn: Any = None,
        batch_size: int | None = None,
        eval_steps: int | None = None,
        every_n_steps: int = 100,
        metrics: Any = None,
        hooks: Any = None,
        early_stopping_rounds: int | None = None,
        early_stopping_metric: str = "loss",
        early_stopping_metric_minimize: bool = True,
        name: str | None = None,
        check_interval_secs: float | None = 5,
    ) -> None:
        super().__init__(every_n_steps=every_n_steps, first_n_steps=-1)
        if x is None and input_fn is None:
            raise ValueError("Either x or input_fn should be provided.")
        self.x: Any = x
        self.y: Any = y
        self.input_fn: Any = input_fn
        self.batch_size: int | None = batch_size
        self.eval_steps: int | None = eval_steps
        self.metrics: Any = metrics
        self.hooks: Any = hooks
        self.name: str | None = name
        self.early_stopping_rounds = early_stopping_rounds
        self.early_stopping_metric = early_stopping_metric
        self.early_stopping_metric_minimize = early_stopping_metric_minimize
        self._best_value_step: Any = None
        self._best_value: Any = None
        self._best_metrics: Any = None
        self._early_stopped = False
        self._latest_path: Any = None
        self._latest_path_step: Any = None
        self._last_checkpoint_check_time: float | None = None
        self._check_interval_secs = check_interval_secs

    @property
    def early_stopped(self) -> bool:
        """True if the monitor has ended training."""
        return self._early_stopped

    @property
    def best_step(self) -> Any:
        """The step at which the metric of early stopping was best, or None."""
        return self._best_value_step

    @property
    def best_value(self) -> Any:
        """The best value of the metric of early stopping, or None."""
        return self._best_value

    @property
    def best_metrics(self) -> Any:
        """All metrics of the evaluation with the best value, or None."""
        return self._best_metrics

    def _evaluate_estimator(self) -> Any:
        if not isinstance(self._estimator, EstimatorV1):
            return self._estimator.evaluate(
                x=self.x, y=self.y, input_fn=self.input_fn, batch_size=self.batch_size, steps=self.eval_steps,
                metrics=self.metrics, hooks=self.hooks, name=self.name,
            )  # fmt: skip
        if any(value is not None for value in (self.x, self.y, self.batch_size, self.metrics)):
            raise ValueError(
                "tf.estimator.Estimator does not support following arguments: x, y, batch_size, metrics. Should set as "
                "`None` in ValidationMonitor"
            )
        return self._estimator.evaluate(input_fn=self.input_fn, steps=self.eval_steps, hooks=self.hooks, name=self.name)

    def every_n_step_end(self, step: Any, outputs: Any) -> bool:
        """Evaluates the newest checkpoint, if it is new.

        Returns:
          True to end training.

        Raises:
          ValueError: the monitor has no Estimator, an argument doesn't go with it, or the metric isn't among those that
            it evaluates.
        """
        if self._estimator is None:
            raise ValueError("Missing call to set_estimator.")
        if not self._has_new_checkpoint(step):
            return False
        metrics = self._evaluate_estimator()
        logging.info("Validation (step %d): %s", step, ", ".join(f"{name} = {metrics[name]}" for name in metrics))
        return self.early_stopping_rounds is not None and self._has_stopped_improving(step, metrics)

    def _has_new_checkpoint(self, step: Any) -> bool:
        now, last = time.time(), self._last_checkpoint_check_time
        if None not in (self._check_interval_secs, last) and now - last <= self._check_interval_secs:  # type: ignore[operator]
            logging.debug(
                "Skipping evaluation since less than %d seconds have passed since last check for a new checkpoint.",
                self._check_interval_secs,
            )
            return False
        self._last_checkpoint_check_time = now
        path = checkpoint_management.latest_checkpoint(self._estimator.model_dir)
        if path is None:
            logging.debug("Skipping evaluation since model has not been saved yet at step %d.", step)
            return False
        if path == self._latest_path:
            logging.debug(
                "Skipping evaluation due to same checkpoint %s for step %d as for step %d.",
                path,
                step,
                self._latest_path_step,
            )
            return False
        self._latest_path, self._latest_path_step = path, step
        return True

    def _has_stopped_improving(self, step: Any, metrics: Any) -> bool:
        if self.early_stopping_metric not in metrics:
            raise ValueError(f"Metric {self.early_stopping_metric} missing from outputs {set(metrics)}.")
        value, best = metrics[self.early_stopping_metric], self._best_value
        if best is None or (value < best if self.early_stopping_metric_minimize else value > best):
            self._best_value, self._best_metrics, self._best_value_step = value, copy.deepcopy(metrics), step
        if step - self._best_value_step < self.early_stopping_rounds:
            return False
        logging.info(
            "Stopping. Best step: %s with %s = %s.", self._best_value_step, self.early_stopping_metric, self._best_value
        )
        self._early_stopped = True
        return True
