"""EvalResult: the outcome of one attempt to evaluate a checkpoint."""

from __future__ import annotations

from typing import Any, NamedTuple

from tensorflow.python.framework import ops

__all__ = ["EvalResult", "EvalStatus"]


class EvalStatus:
    """Outcomes of an attempt to evaluate a checkpoint.

    - EVALUATED: a new checkpoint was evaluated.
    - MISSING_CHECKPOINT: the model directory has no checkpoint yet.
    - NO_NEW_CHECKPOINT: no checkpoint was saved since the last evaluation.
    - THROTTLED: there is a new checkpoint, fewer than `EvalSpec.throttle_steps` steps after the last one evaluated.
    """

    EVALUATED = "evaluated"
    MISSING_CHECKPOINT = "missing checkpoint"
    NO_NEW_CHECKPOINT = "no new checkpoint"
    THROTTLED = "throttled"


class _EvalResult(NamedTuple):
    status: Any
    metrics: Any
    checkpoint_path: Any


def _check_metrics(metrics: Any) -> None:
    """Refuses metrics that `Estimator.evaluate` can't have returned."""
    if metrics and not isinstance(metrics, dict):
        raise TypeError(f"`Estimator.evaluate` should return dict. Given {type(metrics)}.")
    if not metrics:
        raise ValueError("Internal error: `Estimator.evaluate` should never return empty metrics.")
    if ops.GraphKeys.GLOBAL_STEP not in metrics:
        raise ValueError(
            f"Internal error: `Estimator.evaluate` result should have `global_step` in result. Given {metrics}"
        )


class EvalResult(_EvalResult):
    """The outcome of an attempt to evaluate a checkpoint.

    Args:
      status: one of `EvalStatus`.
      metrics: dictionary that `Estimator.evaluate` returned. Only with status EVALUATED.
      checkpoint_path: path of the evaluated checkpoint. Only with status EVALUATED.

    Raises:
      ValueError: metrics or checkpoint_path don't go with the status, or the metrics lack the global step.
      TypeError: metrics isn't a dictionary.
    """

    __slots__ = ()

    def __new__(cls, status: str, metrics: Any = None, checkpoint_path: Any = None) -> EvalResult:
        if status == EvalStatus.EVALUATED:
            _check_metrics(metrics)
            if not checkpoint_path:
                raise ValueError("Internal error: `checkpoint_path` should never be empty.")
        else:
            for name, label, value in (
                ("metrics", "metrics", metrics),
                ("checkpoint", "checkpoint_path", checkpoint_path),
            ):
                if value:
                    raise ValueError(
                        f"{name} must be `None` if status is not {EvalStatus.EVALUATED}; got status {status}, {label} "
                        f"{value}"
                    )
        return super().__new__(cls, status, metrics, checkpoint_path)
