"""Evaluates a newer checkpoint if training deletes the one that is being evaluated."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

from tensorflow.python.checkpoint import checkpoint_management
from tensorflow.python.framework import errors
from tensorflow.python.platform import tf_logging as logging

from fastsup.checkpoint.directory import step_of

__all__ = ["evaluate_or_newer", "step_in_name"]

_Result = TypeVar("_Result")


def evaluate_or_newer(path: Any, latest: Callable[[], Any], evaluate: Callable[[Any], _Result]) -> tuple[Any, _Result]:
    """Evaluates a checkpoint, or a newer one if the checkpoint is deleted meanwhile.

    This repeats, with a warning each time, while training saves as many checkpoints as it keeps before an evaluation
    has restored one. It ends with training at the latest: the last checkpoint isn't deleted.

    Args:
      path: path of the checkpoint.
      latest: function that returns the path of the newest checkpoint.
      evaluate: function of a path that evaluates that checkpoint.

    Returns:
      The path of the evaluated checkpoint, and the result of `evaluate`.

    Raises:
      Exception: the error of `evaluate`, if it doesn't name the checkpoint, the checkpoint still exists, or there is no
        newer one.
    """
    while True:
        try:
            return path, evaluate(path)
        except (errors.OpError, ValueError) as error:  # noqa: PERF203
            newer = latest() if _names_checkpoint(error, path) and _is_gone(path) else None
            if not newer or newer == path or _is_older(newer, path):
                raise
            logging.warning(
                "The checkpoint %s was deleted while it was being evaluated (%s). Evaluating %s in its place. A larger "
                "RunConfig.keep_checkpoint_max keeps checkpoints for longer. "
                "See `python -m fastsup docs dropin#estimator`.",
                path,
                type(error).__name__,
                newer,
            )
            path = newer


def step_in_name(path: Any) -> int | None:
    """The global step in the name of a checkpoint, or None if the name has none."""
    return step_of(os.fsdecode(path)) if isinstance(path, (str, bytes, os.PathLike)) else None


def _is_older(path: Any, other: Any) -> bool:
    step, other_step = step_in_name(path), step_in_name(other)
    return step is not None and other_step is not None and step < other_step


def _names_checkpoint(error: Exception, path: Any) -> bool:
    """True if an error's message has the checkpoint's path, as that of a failed restore has."""
    return isinstance(path, (str, bytes, os.PathLike)) and os.fsdecode(path) in str(error)


def _is_gone(path: Any) -> bool:
    return not checkpoint_management.checkpoint_exists_internal(os.fsdecode(path))
