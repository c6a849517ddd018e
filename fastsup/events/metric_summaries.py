"""Writes the metrics of an evaluation into an event file."""

from __future__ import annotations

from typing import Any

import numpy as np
from google.protobuf import message
from tensorflow.core.framework import summary_pb2
from tensorflow.python.framework import dtypes, tensor_util
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.summary.writer import writer_cache

__all__ = ["write_checkpoint_path", "write_metrics"]


def _as_text(metrics: dict[str, Any]) -> str:
    # `str` formats a NumPy number with the digits of its type, while a format string uses the digits of a double.
    return ", ".join(f"{name} = {value!s}" for name, value in sorted(metrics.items()) if not isinstance(value, bytes))


def _write(directory: str, summary: Any, global_step: int) -> None:
    writer = writer_cache.FileWriterCache.get(directory)
    writer.add_summary(summary, global_step)
    writer.flush()


def write_metrics(output_dir: str, metrics: dict[str, Any], global_step: int) -> None:
    """Logs metrics and writes them as summaries."""
    logging.info("Saving dict for global step %d: %s", global_step, _as_text(metrics))
    summary = summary_pb2.Summary()
    for name, value in metrics.items():
        if value is None or name == "global_step":
            continue
        if isinstance(value, np.float32 | float):
            summary.value.add(tag=name, simple_value=float(value))
        elif isinstance(value, np.int64 | np.int32 | int):
            summary.value.add(tag=name, simple_value=int(value))
        elif isinstance(value, bytes):
            try:
                several = summary_pb2.Summary.FromString(value)
            except message.DecodeError:
                logging.warning("Skipping summary for %s, cannot parse string to Summary.", name)
                continue
            for i, one in enumerate(several.value):
                one.tag = f"{name}/{i}"
            summary.value.extend(several.value)
        elif isinstance(value, np.ndarray):
            summary.value.add(tag=name, node_name=name, tensor=tensor_util.make_tensor_proto(value))
            logging.info(
                "Summary for np.ndarray is not visible in Tensorboard by default. Consider using a Tensorboard plugin "
                "for visualization (see https://github.com/tensorflow/tensorboard-plugin-example/blob/master/README.md"
                " for more information)."
            )
        else:
            logging.warning(
                "Skipping summary for %s, must be a float, np.float32, np.int64, np.int32 or int or np.ndarray or a "
                "serialized string of Summary.",
                name,
            )
    _write(output_dir, summary, global_step)


def write_checkpoint_path(output_dir: str, checkpoint_path: str, global_step: int) -> None:
    """Writes the path of the evaluated checkpoint as a summary."""
    logging.info("Saving 'checkpoint_path' summary for global step %d: %s", global_step, checkpoint_path)
    summary = summary_pb2.Summary()
    path = tensor_util.make_tensor_proto(checkpoint_path, dtype=dtypes.string)
    summary.value.add(tag="checkpoint_path", tensor=path)
    _write(output_dir, summary, global_step)
