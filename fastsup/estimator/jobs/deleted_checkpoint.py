"""A checkpoint that training deletes while somebody evaluates it makes way for a newer one."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

from tensorflow.python.checkpoint import checkpoint_management
from tensorflow.python.framework import errors
from tensorflow.python.platform import tf_logging as logging

from fastsup.checkpoint.directory import step_of

__all__ = ["step_in_name", "with_newer_if_deleted"]

_Result = TypeVar("_Result")


def with_newer_if_deleted(
    path: Any, latest: Callable[[], Any], evaluate: Callable[[Any], _Result]
) -> tuple[Any, _Result]:
    """Evaluates a checkpoint, or a newer one if it is deleted meanwhile.

    While training is faster than the start of an evaluation, by as many checkpoints as are kept, this goes on, with a
    warning for each. It ends when training does: the last checkpoint stays.

    Args:
      path: the checkpoint.
      latest: function that returns the newest checkpoint there is.
      evaluate: function of a checkpoint that evaluates it.

    Returns:
      The checkpoint that was evaluated, and what `evaluate` returned.

    Raises:
      What `evaluate` raises, if it isn't about the checkpoint, or the checkpoint is still there, or no newer one is.
    """
    while True:
        try:
            return path, evaluate(path)
        except (errors.OpError, ValueError) as error:  # noqa: PERF203
            newer = latest() if _is_about(error, path) and _is_gone(path) else None
            if not newer or newer == path or _is_older(newer, path):
                raise
            logging.warning(
                "The checkpoint %s was deleted while it was being evaluated (%s). Evaluating %s in its place. A larger "
                "RunConfig.keep_checkpoint_max keeps checkpoints for longer.",
                path,
                type(error).__name__,
                newer,
            )
            path = newer


def step_in_name(path: Any) -> int | None:
    """The global step in a checkpoint's name, or None if there is none."""
    return step_of(os.fsdecode(path)) if isinstance(path, (str, bytes, os.PathLike)) else None


def _is_older(path: Any, other: Any) -> bool:
    step, other_step = step_in_name(path), step_in_name(other)
    return step is not None and other_step is not None and step < other_step


def _is_about(error: Exception, path: Any) -> bool:
    """Whether an error names the checkpoint, as those of reading it do."""
    return isinstance(path, (str, bytes, os.PathLike)) and os.fsdecode(path) in str(error)


def _is_gone(path: Any) -> bool:
    return not checkpoint_management.checkpoint_exists_internal(os.fsdecode(path))
