"""EvalResult: what came of one look for a checkpoint to evaluate."""

from __future__ import annotations

from typing import Any, NamedTuple

from tensorflow.python.framework import ops

__all__ = ["EvalResult", "EvalStatus"]


class EvalStatus:
    """What came of a look for a checkpoint to evaluate.

    - EVALUATED: there was a new checkpoint, and it was evaluated.
    - MISSING_CHECKPOINT: there is no checkpoint yet.
    - NO_NEW_CHECKPOINT: there is none since the last evaluation.
    - THROTTLED: there is a new one, but `EvalSpec.throttle_steps` says that it comes too soon after the last.
    """

    EVALUATED = "evaluated"
    MISSING_CHECKPOINT = "missing checkpoint"
    NO_NEW_CHECKPOINT = "no new checkpoint"
    THROTTLED = "throttled"


class _EvalResult(NamedTuple):
    status: Any
    metrics: Any
    checkpoint_path: Any


class EvalResult(_EvalResult):
    """What came of a look for a checkpoint to evaluate.

    Args:
      status: one of `EvalStatus`.
      metrics: what `Estimator.evaluate` returned. Only if status is EVALUATED.
      checkpoint_path: the checkpoint that was evaluated. Only if status is EVALUATED.

    Raises:
      ValueError: metrics or checkpoint_path are given and shouldn't be, or should be and aren't, or the metrics have no
        global step.
      TypeError: metrics isn't a dictionary.
    """

    __slots__ = ()

    def __new__(cls, status: str, metrics: Any = None, checkpoint_path: Any = None) -> EvalResult:
        if status != EvalStatus.EVALUATED:
            only_if = f"must be `None` if status is not {EvalStatus.EVALUATED}; got status {status},"
            if metrics:
                raise ValueError(f"metrics {only_if} metrics {metrics}")
            if checkpoint_path:
                raise ValueError(f"checkpoint {only_if} checkpoint_path {checkpoint_path}")
            return super().__new__(cls, status, metrics, checkpoint_path)
        if not metrics:
            raise ValueError("Internal error: `Estimator.evaluate` should never return empty metrics.")
        if not isinstance(metrics, dict):
            raise TypeError(f"`Estimator.evaluate` should return dict. Given {type(metrics)}.")
        if ops.GraphKeys.GLOBAL_STEP not in metrics:
            raise ValueError(
                f"Internal error: `Estimator.evaluate` result should have `global_step` in result. Given {metrics}"
            )
        if not checkpoint_path:
            raise ValueError("Internal error: `checkpoint_path` should never be empty.")
        return super().__new__(cls, status, metrics, checkpoint_path)
