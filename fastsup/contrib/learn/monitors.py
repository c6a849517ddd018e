"""Monitors, the training callbacks before there were hooks. `Experiment` accepts them in `train_monitors`.

`basic_monitors` contains the base classes and the monitors of values. The monitors here write files or evaluate.
"""

from __future__ import annotations

import copy
import os
import time
from typing import Any

from tensorflow.core.framework.summary_pb2 import Summary
from tensorflow.core.util.event_pb2 import SessionLog
from tensorflow.python.checkpoint import checkpoint_management
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.summary.writer import writer, writer_cache
from tensorflow.python.training.basic_session_run_hooks import NanLossDuringTrainingError

from fastsup.checkpoint.durable import save_durably
from fastsup.contrib.learn.basic_monitors import (
    BaseMonitor,
    CaptureVariable,
    EveryN,
    GraphDump,
    LoggingTrainable,
    NanLoss,
    PrintTensor,
    StopAtStep,
    extract_output,
)
from fastsup.estimator.model.estimator import EstimatorV1
from fastsup.experiment.monitor_hooks import RunHookAdapterForMonitors, replace_monitors_with_hooks

__all__ = [
    "BaseMonitor",
    "CaptureVariable",
    "CheckpointSaver",
    "EveryN",
    "ExportMonitor",
    "GraphDump",
    "LoggingTrainable",
    "NanLoss",
    "NanLossDuringTrainingError",
    "PrintTensor",
    "RunHookAdapterForMonitors",
    "StepCounter",
    "StopAtStep",
    "SummarySaver",
    "ValidationMonitor",
    "get_default_monitors",
    "replace_monitors_with_hooks",
]


class SummarySaver(EveryN):
    """Writes a summary to the events.

    Args:
      summary_op: the serialized summary, a string tensor. If None, uses the summary of `scaffold`.
      save_steps: number of steps between summaries.
      output_dir: directory of the events. Only without `summary_writer`. If None, uses the Estimator's directory.
      summary_writer: `FileWriter` to write with.
      scaffold: `Scaffold` with the summary.
    """

    def __init__(
        self,
        summary_op: Any,
        save_steps: int = 100,
        output_dir: Any = None,
        summary_writer: Any = None,
        scaffold: Any = None,
    ) -> None:
        super().__init__(every_n_steps=save_steps)
        self._summary_op = summary_op
        self._summary_writer = summary_writer
        if summary_writer is None and output_dir:
            self._summary_writer = writer.FileWriter(output_dir)
        self._scaffold = scaffold

    def set_estimator(self, estimator: Any) -> None:
        """Opens the events in the Estimator's directory, unless another directory was given."""
        super().set_estimator(estimator)
        if self._summary_writer is None:
            self._summary_writer = writer.FileWriter(estimator.model_dir)

    def every_n_step_begin(self, step: Any) -> list[Any]:
        """Requests the summary."""
        if self._summary_op is None and self._scaffold is not None:
            self._summary_op = self._scaffold.summary_op
        return [] if self._summary_op is None else [self._summary_op]

    def every_n_step_end(self, step: Any, outputs: Any) -> bool:
        """Writes the summary."""
        if self._summary_op is not None and self._summary_writer:
            self._summary_writer.add_summary(extract_output(outputs, self._summary_op), step)
        return False

    def end(self, session: Any = None) -> None:
        """Flushes the events."""
        super().end(session=session)
        if self._summary_writer:
            self._summary_writer.flush()


class StepCounter(EveryN):
    """Writes the steps per second to the events, as `global_step/sec`.

    Args:
      every_n_steps: number of steps between two values.
      output_dir: directory of the events. Only without `summary_writer`. If None, uses the Estimator's directory.
      summary_writer: `FileWriter` to write with.
    """

    def __init__(self, every_n_steps: int = 100, output_dir: Any = None, summary_writer: Any = None) -> None:
        super().__init__(every_n_steps=every_n_steps)
        self._summary_tag = "global_step/sec"
        self._last_reported_step: Any = None
        self._last_reported_time: Any = None
        self._summary_writer = summary_writer
        if summary_writer is None and output_dir:
            self._summary_writer = writer_cache.FileWriterCache.get(output_dir)

    def set_estimator(self, estimator: Any) -> None:
        """Opens the events in the Estimator's directory, unless another directory was given."""
        super().set_estimator(estimator)
        if self._summary_writer is None:
            self._summary_writer = writer_cache.FileWriterCache.get(estimator.model_dir)

    def every_n_step_end(self, step: Any, outputs: Any) -> None:
        """Writes the rate since the last call."""
        now = time.time()
        # If no time has passed on the clock, there is no rate.
        if self._last_reported_time is not None and self._summary_writer and now != self._last_reported_time:
            rate = (step - self._last_reported_step) / (now - self._last_reported_time)
            value = Summary.Value(tag=self._summary_tag, simple_value=rate)
            self._summary_writer.add_summary(Summary(value=[value]), step)
        self._last_reported_step, self._last_reported_time = step, now


class CheckpointSaver(BaseMonitor):
    """Writes checkpoints after the first step, at intervals, and at the end.

    Args:
      checkpoint_dir: directory of the checkpoints.
      save_secs: seconds between checkpoints. Exclusive with `save_steps`.
      save_steps: steps between checkpoints.
      saver: `Saver` to write with. If None, uses the saver of `scaffold`.
      checkpoint_basename: prefix of the files' names.
      scaffold: `Scaffold` with the saver.

    Raises:
      ValueError: If both intervals or neither are given.
    """

    def __init__(
        self,
        checkpoint_dir: Any,
        save_secs: float | None = None,
        save_steps: int | None = None,
        saver: Any = None,
        checkpoint_basename: str = "model.ckpt",
        scaffold: Any = None,
    ) -> None:
        logging.info("Create CheckpointSaver.")
        super().__init__()
        if save_steps is None and save_secs is None:
            raise ValueError("Either save_steps or save_secs should be provided")
        if save_steps is not None and save_secs is not None:
            raise ValueError("Can not provide both save_steps and save_secs.")
        self._saver = saver
        self._summary_writer = writer_cache.FileWriterCache.get(checkpoint_dir)
        self._save_path = os.path.join(checkpoint_dir, checkpoint_basename)
        self._scaffold = scaffold
        self._save_secs: Any = save_secs
        self._save_steps: Any = save_steps
        self._last_saved_time: Any = None
        self._last_begin_step: Any = None
        self._last_saved_step: Any = None

    def begin(self, max_steps: int | None = None) -> None:
        """Forgets the checkpoints of an earlier training."""
        super().begin(max_steps)
        self._last_saved_time = self._last_begin_step = self._last_saved_step = None

    def step_begin(self, step: Any) -> list[Any]:
        """Records the step for the checkpoint at the end."""
        super().step_begin(step)
        self._last_begin_step = step
        return []

    def post_step(self, step: Any, session: Any) -> None:
        """Writes a checkpoint if one is due."""
        super().post_step(step, session)
        if (
            self._last_saved_time is None
            or (self._save_steps is not None and step >= self._last_saved_step + self._save_steps)
            or (self._save_secs is not None and time.time() >= self._last_saved_time + self._save_secs)
        ):
            self._save(step, session)

    def end(self, session: Any = None) -> None:
        """Writes the last checkpoint."""
        super().end(session)
        if self._last_begin_step is not None:
            self._save(self._last_begin_step, session)

    def _save(self, step: Any, session: Any) -> None:
        if step == self._last_saved_step:
            return
        logging.info("Saving checkpoints for %d into %s.", step, self._save_path)
        self._last_saved_time, self._last_saved_step = time.time(), step
        saver = self._scaffold.saver if self._saver is None else self._saver
        save_durably(saver, session, self._save_path, step)
        log = SessionLog(status=SessionLog.CHECKPOINT, checkpoint_path=self._save_path)
        self._summary_writer.add_session_log(log, step)


_USE_EXPORT_STRATEGY = (
    "ExportMonitor does not support `tf.estimator.Estimator. `. Please pass an ExportStrategy to Experiment instead."
)


class ExportMonitor(EveryN):
    """Exports an older estimator, which has a method `export`.

    Args:
      every_n_steps: number of steps between exports.
      export_dir: directory of the exports.
      input_fn: argument of `export`.
      input_feature_key: argument of `export`.
      exports_to_keep: argument of `export`: number of exports to keep.
      signature_fn: argument of `export`.
      default_batch_size: argument of `export`.
    """

    def __init__(
        self,
        every_n_steps: int,
        export_dir: Any,
        input_fn: Any = None,
        input_feature_key: str | None = None,
        exports_to_keep: int | None = 5,
        signature_fn: Any = None,
        default_batch_size: int | None = 1,
    ) -> None:
        super().__init__(every_n_steps=every_n_steps)
        self._export_dir = export_dir
        self._exports_to_keep = exports_to_keep
        self._signature_fn = signature_fn
        self._last_export_dir: Any = None
        self._arguments = {
            "exports_to_keep": exports_to_keep,
            "signature_fn": signature_fn,
            "input_fn": input_fn,
            "default_batch_size": default_batch_size,
            "input_feature_key": input_feature_key,
            "use_deprecated_input_fn": input_fn is None,
        }

    @property
    def export_dir(self) -> Any:
        """The directory of the exports."""
        return self._export_dir

    @property
    def exports_to_keep(self) -> int | None:
        """The number of exports to keep."""
        return self._exports_to_keep

    @property
    def signature_fn(self) -> Any:
        """The function that creates the signatures."""
        return self._signature_fn

    @property
    def last_export_dir(self) -> Any:
        """The directory of the last export, or None."""
        return self._last_export_dir

    def every_n_step_end(self, step: Any, outputs: Any) -> None:
        """Exports.

        Raises:
          ValueError: If the estimator is a `tf.estimator.Estimator`.
        """
        self._export(
            "Skipping exporting because the existing checkpoint has already been exported. "
            "Consider exporting less frequently."
        )

    def end(self, session: Any = None) -> None:
        """Exports the last checkpoint, if there is one.

        Raises:
          ValueError: If the estimator is a `tf.estimator.Estimator`.
        """
        super().end(session=session)
        if checkpoint_management.latest_checkpoint(self._estimator.model_dir) is None:
            logging.info("Skipping export at the end since model has not been saved yet.")
            return
        self._export("Skipping exporting for the same step.")

    def _export(self, skipping: str) -> None:
        if isinstance(self._estimator, EstimatorV1):
            raise ValueError(_USE_EXPORT_STRATEGY)
        try:
            self._last_export_dir = self._estimator.export(self.export_dir, **self._arguments)
        except RuntimeError:
            logging.info(skipping)


class ValidationMonitor(EveryN):
    """Evaluates new checkpoints during training.

    Args:
      x: data, for an older estimator.
      y: labels of `x`.
      input_fn: function that returns the evaluation data.
      batch_size: number of rows of `x` per batch.
      eval_steps: number of batches. If None, evaluates until the data ends.
      every_n_steps: number of steps between checks for a new checkpoint.
      metrics: metrics, for an older estimator.
      hooks: hooks for the evaluation.
      early_stopping_rounds: number of steps without a better metric after which training ends. If None, never ends it.
      early_stopping_metric: name of that metric.
      early_stopping_metric_minimize: Whether a smaller value is better.
      name: name of the evaluation.
      check_interval_secs: minimum seconds between checks. If None, uses 0.

    Raises:
      ValueError: If there is neither `x` nor `input_fn`.
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
        """True if the monitor ended training."""
        return self._early_stopped

    @property
    def best_step(self) -> Any:
        """The step with the best value of the early-stopping metric, or None."""
        return self._best_value_step

    @property
    def best_value(self) -> Any:
        """The best value of the early-stopping metric, or None."""
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
        """Evaluates the newest checkpoint if it is new.

        Returns:
          True to end training.

        Raises:
          ValueError: If the monitor has no Estimator, an argument isn't valid for its kind, or the metric isn't among
            the evaluated ones.
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


def get_default_monitors(
    loss_op: Any = None,
    summary_op: Any = None,
    save_summary_steps: int = 100,
    output_dir: Any = None,
    summary_writer: Any = None,
) -> list[Any]:
    """Creates the monitors that most training programs use.

    Args:
      loss_op: the loss to log with a `PrintTensor`, or None.
      summary_op: the serialized summary to write with a `SummarySaver`, or None.
      save_summary_steps: argument of the `SummarySaver`.
      output_dir: argument of the `SummarySaver`.
      summary_writer: argument of the `SummarySaver`.

    Returns:
      List of the monitors.
    """
    monitors: list[Any] = []
    if loss_op is not None:
        monitors.append(PrintTensor(tensor_names={"loss": loss_op.name}))
    if summary_op is not None:
        monitors.append(SummarySaver(summary_op, save_summary_steps, output_dir, summary_writer))
    return monitors


def __dir__() -> list[str]:
    return sorted(__all__)
