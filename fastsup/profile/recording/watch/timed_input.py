"""Measures a pass's wait for its input inside tf.data, because TensorFlow takes the batch outside of Python."""

from __future__ import annotations

import itertools
import sys
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.core.framework import summary_pb2
from tensorflow.python.data.ops import dataset_ops
from tensorflow.python.eager import context

__all__ = ["InputWait", "TimedInput", "timed_input"]

_numbers = itertools.count()
_TAG = "fastsup: wait for input"


class InputWait(NamedTuple):
    """The wait for an input.

    Attributes:
      calls: number of batches.
      total_ns: nanoseconds, with microsecond precision per batch.
      max_ns: the longest wait.
    """

    calls: int = 0
    total_ns: int = 0
    max_ns: int = 0

    def since(self, before: InputWait) -> InputWait:
        """Returns the wait since an earlier reading. A longest wait that isn't longer than before counts as none.

        Args:
          before: the earlier reading.
        """
        longest = self.max_ns if self.max_ns > before.max_ns else 0
        return InputWait(self.calls - before.calls, self.total_ns - before.total_ns, longest)


class _TimedDataset(dataset_ops.UnaryUnchangedStructureDataset):  # type: ignore[misc]
    """A dataset that measures how long taking each element lasts.

    Args:
      dataset: the dataset.
      waits: handle of TensorFlow's aggregator of statistics.
    """

    def __init__(self, dataset: Any, waits: Any) -> None:
        self._input_dataset = dataset
        structure = self._input_dataset._flat_structure
        timed = tf.raw_ops.LatencyStatsDataset(input_dataset=dataset._variant_tensor, tag=_TAG, **structure)
        kept = tf.raw_ops.SetStatsAggregatorDataset(
            input_dataset=timed, stats_aggregator=waits, tag="", counter_prefix="", **structure
        )
        super().__init__(dataset, kept)


class TimedInput:
    """A dataset whose elements are timed.

    Args:
      dataset: the dataset.
    """

    def __init__(self, dataset: Any) -> None:
        with tf.device("/CPU:0"):
            # Handles with the same name would be the same.
            self._waits = tf.raw_ops.StatsAggregatorHandle(shared_name=f"fastsup_input_{next(_numbers)}")
            #: The dataset to iterate over.
            self.dataset: Any = _TimedDataset(dataset, self._waits)

    def __del__(self) -> None:
        waits = vars(self).get("_waits")
        if waits is not None and not sys.is_finalizing():
            with context.eager_mode():  # The object may be deleted while a graph is built.
                tf.raw_ops.DestroyResourceOp(resource=waits, ignore_lookup_error=True)

    def read(self) -> InputWait:
        """Returns the wait so far, over all iterations."""
        with tf.device("/CPU:0"):
            text = tf.raw_ops.StatsAggregatorSummary(iterator=self._waits).numpy()
        for value in summary_pb2.Summary.FromString(text).value:
            if value.tag == _TAG:
                times = value.histo
                return InputWait(int(times.num), int(1000 * times.sum), int(1000 * times.max))
        return InputWait()


def timed_input(dataset: Any) -> TimedInput | None:
    """Adds measurements to a dataset.

    Args:
      dataset: the dataset of a pass.

    Returns:
      The timed dataset, or None if it isn't a `tf.data.Dataset`, such as a strategy's distributed dataset.
    """
    if not isinstance(dataset, tf.data.Dataset) or not tf.executing_eagerly():
        return None
    return TimedInput(dataset)
