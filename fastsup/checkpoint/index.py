"""The index of a checkpoint: the names of its tensors."""

from __future__ import annotations

from typing import Any

from tensorflow.python.framework import errors
from tensorflow.python.trackable.base import OBJECT_GRAPH_PROTO_KEY
from tensorflow.python.training import py_checkpoint_reader

__all__ = ["is_object_based", "open_checkpoint"]


def open_checkpoint(path: str) -> tuple[Any, dict[str, list[int]]]:
    """Opens a checkpoint.

    TensorFlow's reader says nothing of an error that ends the list of names: it is then too short.

    Args:
      path: path of the checkpoint, in the form that `Saver.restore` takes.

    Returns:
      (reader, shapes): TensorFlow's reader, and for each tensor's name its shape.

    Raises:
      tf.errors.UnavailableError: the list is empty. No saver writes such a checkpoint, so reading has failed.
      Exception: as TensorFlow's reader.
    """
    reader = py_checkpoint_reader.NewCheckpointReader(path)
    shapes = reader.get_variable_to_shape_map()
    if not shapes:
        raise errors.UnavailableError(None, None, f"{path}.index can't be read: it seems to have no tensors.")
    return reader, shapes


def is_object_based(shapes: dict[str, list[int]]) -> bool:
    """True for a checkpoint of a `tf.train.Checkpoint`, false for one of a `tf.compat.v1.train.Saver`.

    Args:
      shapes: as of `open_checkpoint`.
    """
    return OBJECT_GRAPH_PROTO_KEY in shapes
