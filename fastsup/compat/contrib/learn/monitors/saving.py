"""Monitors that write checkpoints, summaries and exports."""

from __future__ import annotations

import os
import time
from typing import Any

from tensorflow.core.framework.summary_pb2 import Summary
from tensorflow.core.util.event_pb2 import SessionLog
from tensorflow.python.checkpoint import checkpoint_management
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.summary.writer import writer, writer_cache

from fastsup.checkpoint.durable import save_durably
from fastsup.compat.contrib.learn.monitors.base import BaseMonitor, EveryN, extract_output
from fastsup.estimator.model.estimator import EstimatorV1

__all__ = ["CheckpointSaver", "ExportMonitor", "StepCounter", "SummarySaver"]


class SummarySaver(EveryN):
    """Writes a summary.

    Args:
      summary_op: the serialised summary, a string tensor; or None for that of `scaffold`.
      save_steps: number of steps from one summary to the next.
      output_dir: directory of the events. Only without `summary_writer`. None: that of the Estimator.
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
        """Opens the events in the Estimator's directory, if no other was given."""
        super().set_estimator(estimator)
        if self._summary_writer is None:
            self._summary_writer = writer.FileWriter(estimator.model_dir)

    def every_n_step_begin(self, step: Any) -> list[Any]:
        """Asks for the summary."""
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
      every_n_steps: number of steps from one value to the next.
      output_dir: directory of the events. Only without `summary_writer`. None: that of the Estimator.
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
        """Opens the events in the Estimator's directory, if no other was given."""
        super().set_estimator(estimator)
        if self._summary_writer is None:
            self._summary_writer = writer_cache.FileWriterCache.get(estimator.model_dir)

    def every_n_step_end(self, step: Any, outputs: Any) -> None:
        """Writes the rate since the last time."""
        now = time.time()
        # In a time that the clock can't tell from 0 there is no rate.
        if self._last_reported_time is not None and self._summary_writer and now != self._last_reported_time:
            rate = (step - self._last_reported_step) / (now - self._last_reported_time)
            value = Summary.Value(tag=self._summary_tag, simple_value=rate)
            self._summary_writer.add_summary(Summary(value=[value]), step)
        self._last_reported_step, self._last_reported_time = step, now


class CheckpointSaver(BaseMonitor):
    """Writes checkpoints: after the first step, by an interval, and at the end.

    Args:
      checkpoint_dir: directory of the checkpoints.
      save_secs: seconds between two checkpoints; or
      save_steps: steps between two checkpoints.
      saver: `Saver` to write with; or None for that of `scaffold`.
      checkpoint_basename: first part of the files' names.
      scaffold: `Scaffold` with the saver.

    Raises:
      ValueError: both intervals are given, or none.
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
        """Forgets the checkpoints of another training."""
        super().begin(max_steps)
        self._last_saved_time = self._last_begin_step = self._last_saved_step = None

    def step_begin(self, step: Any) -> list[Any]:
        """Notes the step, for the checkpoint at the end."""
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
    """Exports an estimator of the older kind, which has a method `export`.

    Args:
      every_n_steps: number of steps from one export to the next.
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
        """The function that makes the signatures."""
        return self._signature_fn

    @property
    def last_export_dir(self) -> Any:
        """The directory of the last export, or None."""
        return self._last_export_dir

    def every_n_step_end(self, step: Any, outputs: Any) -> None:
        """Exports.

        Raises:
          ValueError: the estimator is a `tf.estimator.Estimator`.
        """
        self._export(
            "Skipping exporting because the existing checkpoint has already been exported. "
            "Consider exporting less frequently."
        )

    def end(self, session: Any = None) -> None:
        """Exports the last checkpoint, if there is one.

        Raises:
          ValueError: the estimator is a `tf.estimator.Estimator`.
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
