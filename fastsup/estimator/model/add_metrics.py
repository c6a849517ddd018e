"""add_metrics: makes an Estimator with additional metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tensorflow.python.util import function_utils

from fastsup.estimator.model.estimator import Estimator, check_estimator
from fastsup.estimator.model.model_fn import ModeKeys

__all__ = ["add_metrics"]

_METRIC_FN_ARGS = {"features", "labels", "predictions", "config"}


def add_metrics(estimator: Any, metric_fn: Callable[..., dict[str, Any]]) -> Estimator:
    """Makes a copy of an Estimator with additional metrics.

    Args:
      estimator: the `Estimator` to copy.
      metric_fn: function of any of `features`, `labels`, `predictions` and `config` that returns a dictionary from
        names to metric objects or (value, update) pairs. A metric with the name of an existing one replaces that one.

    Returns:
      The new `Estimator`.

    Raises:
      TypeError: `estimator` isn't an Estimator, or `metric_fn` can't be called. In an evaluation: `metric_fn` returns
        something other than a dictionary.
      ValueError: `metric_fn` has other arguments.
    """
    check_estimator(estimator)
    if not callable(metric_fn):
        raise TypeError(f"metric_fn must be callable, given: {metric_fn!r}")
    taken = function_utils.fn_args(metric_fn)
    others = list(set(taken) - _METRIC_FN_ARGS)
    if others:
        raise ValueError(f"metric_fn ({metric_fn}) has following not expected args: {others}")

    def new_model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
        spec = estimator.model_fn(features, labels, mode, config)
        if mode != ModeKeys.EVAL:
            return spec
        known = {"features": features, "labels": labels, "predictions": spec.predictions, "config": config}
        metrics = metric_fn(**{name: value for name, value in known.items() if name in taken})
        if not isinstance(metrics, Mapping):
            raise TypeError(f"metric_fn ({metric_fn}) must return a dictionary of metrics, and returned {metrics!r}.")
        return spec._replace(eval_metric_ops={**(spec.eval_metric_ops or {}), **metrics})

    return Estimator(
        model_fn=new_model_fn,
        model_dir=estimator.model_dir,
        config=estimator.config,
        warm_start_from=estimator._warm_start_settings,
    )
