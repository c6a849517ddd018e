"""Reads a model directory: the newest checkpoint, its global step, and descriptions for error messages."""

from __future__ import annotations

import os
from typing import Any

from tensorflow.python.framework import errors, ops
from tensorflow.python.lib.io import file_io
from tensorflow.python.platform import tf_logging as logging

from fastsup.checkpoint.directory import is_in, is_unfinished, list_checkpoints
from fastsup.common.file_system import exists
from fastsup.estimator.config.tensorflow_names import tf, v1

__all__ = [
    "describe_directory",
    "global_step_of",
    "newest_checkpoint",
    "parse_checkpoint_path",
    "require_checkpoint",
    "warn_of_state_file",
]

_LISTED = 20


def newest_checkpoint(model_dir: Any) -> str | None:
    """The checkpoint to evaluate: the one that the state file names, or else the newest one in the directory.

    Args:
      model_dir: path of the directory. It needn't exist.

    Returns:
      The path of the checkpoint, as `Saver.restore` expects it; None if there is none.
    """
    try:
        path = tf.train.latest_checkpoint(model_dir)
    except ValueError:  # The state file is empty.
        path = None
    if path and is_in(path, os.fspath(model_dir)):
        return str(path)
    # The state file is lost, or names a checkpoint of another directory. Training would continue from the newest
    # checkpoint of this directory, so an evaluation takes that one too.
    for candidate in list_checkpoints(model_dir).paths:
        if exists(candidate + ".index") and not is_unfinished(candidate):
            return candidate
    return str(path) if path else None


def warn_of_state_file(model_dir: Any, path: str | None) -> None:
    """Warns of a state file that is lost, or that names another checkpoint than the one that is used.

    Args:
      model_dir: path of the directory.
      path: path of the checkpoint that is used, or None.
    """
    if path is None:
        return
    listing = list_checkpoints(model_dir)
    remarks = listing.remarks
    if listing.named and os.path.normpath(listing.paths[0]) != os.path.normpath(path):
        remarks = [f"The state file of {model_dir} names {listing.paths[0]}, which isn't there; {path} is used"]
    for remark in remarks:
        logging.warning("%s. See `python -m fastsup docs recovery`.", remark)


def global_step_of(model_dir: Any) -> int:
    """The global step of the newest checkpoint; 0 if there is none, or if it can't be read."""
    try:
        path = newest_checkpoint(model_dir)
        if path is None:
            return 0
        return int(v1.train.NewCheckpointReader(path).get_tensor(ops.GraphKeys.GLOBAL_STEP))
    except (errors.OpError, RuntimeError, IndexError, ValueError, TypeError):
        return 0


def describe_directory(model_dir: Any) -> str:
    """The files of a directory, in one sentence."""
    path = os.fspath(model_dir)
    try:
        if not file_io.file_exists(path):
            return f"There is no directory {path}."
        if not file_io.is_directory(path):
            return f"{path} is a file, not a directory."
        names = sorted(file_io.list_directory_v2(path))
    except errors.OpError as error:
        return f"{path} can't be read: {error.message}."
    if not names:
        return f"{path} is empty."
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{path} holds: {', '.join(names[:_LISTED])}{more}."


def parse_checkpoint_path(checkpoint_path: Any) -> str | None:
    """The argument `checkpoint_path` as a string; None if it wasn't given.

    Raises:
      TypeError: the argument isn't a path.
    """
    if not checkpoint_path:
        return None
    if not isinstance(checkpoint_path, str | bytes | os.PathLike):
        raise TypeError(
            f"checkpoint_path must be the path of a checkpoint, or None for the newest; got {checkpoint_path!r}."
        )
    return os.fsdecode(checkpoint_path)


def require_checkpoint(model_dir: Any) -> str:
    """The path of the newest checkpoint of a directory.

    Raises:
      ValueError: the directory has no checkpoint. The message lists its files.
    """
    path = newest_checkpoint(model_dir)
    if path is None:
        raise ValueError(
            f"Could not find trained model in model_dir: {model_dir}. {describe_directory(model_dir)} Train the model "
            "first, or name the directory of a trained one."
        )
    return path
