"""Reads the metrics of evaluations from their event files."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from tensorflow.python.framework import errors
from tensorflow.python.lib.io import file_io
from tensorflow.python.platform import tf_logging as logging

from fastsup.common.file_system import exists
from fastsup.estimator.config.tensorflow_names import v1

__all__ = ["read_eval_metrics"]


def _events(eval_dir: str) -> Iterator[Any]:
    """The events in a directory. Of a damaged file, the events before the damage."""
    if not exists(eval_dir):
        return
    for path in file_io.get_matching_files(os.path.join(eval_dir, "events.out.tfevents.*")):
        try:
            yield from v1.train.summary_iterator(path)
        except errors.DataLossError as error:  # noqa: PERF203
            logging.warning(
                "Skipping rest of the file due to encountering data corruption error; file path: %s; original error "
                "raised by `tf.train.summary_iterator`: %s",
                path,
                error,
            )


def read_eval_metrics(eval_dir: str) -> OrderedDict[int, dict[str, float]]:
    """Reads the metrics of evaluations from their event files.

    Args:
      eval_dir: directory of the event files, as returned by `Estimator.eval_dir`.

    Returns:
      Dictionary from global steps, in ascending order, to dictionaries from names of metrics to values. Empty if there
      is no such directory.
    """
    by_step: dict[int, dict[str, float]] = {}
    for event in _events(eval_dir):
        for value in event.summary.value:
            if value.HasField("simple_value"):
                by_step.setdefault(event.step, {})[value.tag] = value.simple_value
    return OrderedDict((step, by_step[step]) for step in sorted(by_step))
