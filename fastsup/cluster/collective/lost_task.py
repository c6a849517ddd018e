"""The error of a training of collectives that has lost one of its tasks."""

from __future__ import annotations

from tensorflow.python.framework import errors

__all__ = ["lost_task_error"]


def lost_task_error(loss: str) -> errors.UnavailableError:
    """Makes the error. Its attribute `loss` is what the other tasks are told.

    Args:
      loss: what was lost, as a sentence without its full stop.
    """
    error = errors.UnavailableError(
        None,
        None,
        f"{loss}. Training with MultiWorkerMirroredStrategy can't go on without all of its workers, so this one ends "
        "too. Start all tasks again with the same TF_CONFIG: they go on from the newest checkpoint.",
    )
    error.loss = loss
    return error
