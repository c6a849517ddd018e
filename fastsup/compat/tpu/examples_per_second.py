"""The hook that logs how many examples are trained a second."""

from __future__ import annotations

from typing import Any

from tensorflow.core.framework.summary_pb2 import Summary
from tensorflow.python.platform import tf_logging as logging

from fastsup import train

__all__ = ["ExamplesPerSecondHook"]


class ExamplesPerSecondHook(train.StepCounterHook):
    """Logs and records the steps and the examples of each second.

    Args:
      batch_size: examples of a step. None: examples aren't counted.
      every_n_steps: global steps between two lines; or
      every_n_secs: seconds between two lines.
      output_dir: directory for the events; or
      summary_writer: their writer. With neither, they are only logged.
    """

    def __init__(
        self,
        batch_size: int | None,
        every_n_steps: int | None = 100,
        every_n_secs: float | None = None,
        output_dir: Any = None,
        summary_writer: Any = None,
    ) -> None:
        self._batch_size = batch_size
        super().__init__(every_n_steps, every_n_secs, output_dir, summary_writer)

    def _log_and_record(self, elapsed_steps: int, elapsed_time: float, global_step: int) -> None:
        rate = elapsed_steps / elapsed_time
        rates = {"global_step/sec": rate}
        if self._batch_size is not None:
            rates["examples/sec"] = self._batch_size * rate
        for tag, value in rates.items():
            if self._summary_writer is not None:
                summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
                self._summary_writer.add_summary(summary, global_step)
            logging.info(f"{tag}: %g", value)
