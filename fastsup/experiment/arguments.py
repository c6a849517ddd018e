"""Checks of the arguments of an Experiment.

TensorFlow's own tests pass strings as functions, numbers of steps, metrics and listeners, and check where these arrive.
Strings are therefore passed on unchecked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.util import function_utils

from fastsup.core.checks import check_members, doubt_about
from fastsup.estimator.model.argument_checks import is_hook, is_listener
from fastsup.estimator.model.estimator import EstimatorV1
from fastsup.experiment.monitor_hooks import is_monitor

__all__ = [
    "as_predicate",
    "check_functions",
    "check_hooks",
    "check_listeners",
    "check_seconds",
    "check_steps",
    "is_core_estimator",
]

_NO_ITERABLE = "`{name}` must be an iterable, or `None`. Got {value!r}."


def is_core_estimator(estimator: Any, eval_metrics: Any) -> bool:
    """Returns True for an `Estimator`, False for an older estimator. Rejects any other object."""
    if isinstance(estimator, EstimatorV1):
        if eval_metrics is not None:
            raise ValueError(
                "`eval_metrics` must be `None` with `tf.estimator.Estimator`. Use `eval_metric_ops` in "
                "`tf.estimator.EstimatorSpec` instead."
            )
        return True
    if not all(callable(getattr(estimator, name, None)) for name in ("fit", "evaluate")):
        raise ValueError(
            "`estimator` must be a `fastsup.estimator.Estimator`, or have the methods `fit` and `evaluate`. "
            f"Got {estimator!r}."
        )
    if eval_metrics is not None and not isinstance(eval_metrics, Mapping | str):
        raise ValueError(
            f"`eval_metrics` must be a dictionary from names to metric functions, or `None`. Got {eval_metrics!r}."
        )
    return False


def check_functions(**arguments: Any) -> None:
    """Rejects input functions that can't be called. None is allowed, because a task may not need all of the data."""
    for name, value in arguments.items():
        if value is not None and not callable(value) and not isinstance(value, str):
            raise ValueError(f"`{name}` must be a function that returns the data, or `None`. Got {value!r}.")


def as_predicate(function: Any) -> Callable[[Any, Any], Any]:
    """Adapts a `continuous_eval_predicate_fn` to two arguments, (eval_results, checkpoint_path). None never stops."""
    if function is None:
        return lambda eval_results, checkpoint_path: True
    if not callable(function):
        raise ValueError(f"`continuous_eval_predicate_fn` must be a callable, or None. Got {function!r}.")
    if "checkpoint_path" in function_utils.fn_args(function):
        return lambda eval_results, checkpoint_path: function(eval_results, checkpoint_path=checkpoint_path)
    return lambda eval_results, checkpoint_path: function(eval_results)


def check_seconds(**arguments: Any) -> None:
    """Rejects arguments other than a finite number of seconds or None. Warns about negative numbers and NaN."""
    for name, value in arguments.items():
        if value is None:
            continue
        if not isinstance(value, Real) or value == math.inf:
            raise ValueError(f"`{name}` must be a number of seconds, 0 or more. Got {value!r}.")
        warning = doubt_about(f"`{name}`", value, "no wait", "no wait", "experiment-and-tfcontrib")
        if warning is not None:
            logging.warning(warning)


def check_steps(positive: bool, **arguments: Any) -> None:
    """Rejects arguments other than a number of steps or None. A fraction of a step counts as a whole one.

    If `positive`, also refuses 0 and negative numbers. Otherwise only warns about negative numbers.
    """
    for name, value in arguments.items():
        if value is None or isinstance(value, str):
            continue
        if not isinstance(value, Real) and not hasattr(value, "__index__"):
            raise ValueError(f"`{name}` must be an integer, or `None`. Got {value!r}.")
        if positive and value <= 0:
            raise ValueError(f"`{name}` must be positive. Got {value!r}.")
        if not positive and value < 0:
            logging.warning("`%s`=%r is negative, and treated as 1. Pass 0 for none.", name, value)


def _is_hook_or_monitor(value: Any) -> bool:
    """Returns True for the hooks of an older estimator, which also accepts objects with `begin` and `end`."""
    return is_hook(value) or all(callable(getattr(value, method, None)) for method in ("begin", "end"))


def _is_hook_or_full_monitor(value: Any) -> bool:
    return is_hook(value) or is_monitor(value)


def check_hooks(name: str, hooks: Any, for_core_estimator: bool = True, monitors: bool = False) -> list[Any]:
    """Checks the hooks given for an argument, and returns them as a list."""
    for_core = _is_hook_or_full_monitor if monitors else is_hook
    return check_members(
        name,
        hooks,
        for_core if for_core_estimator else _is_hook_or_monitor,
        _NO_ITERABLE,
        "`{name}` must be `SessionRunHook` instances, found {value!r}{hint_or_stop}",
        ValueError,
    )


def check_listeners(saving_listeners: Any, for_core_estimator: bool) -> list[Any] | str | None:
    """Checks the listeners given as `saving_listeners`, and returns them as a list. Returns None for None."""
    if saving_listeners is None:
        return None
    if not for_core_estimator:
        raise ValueError("`saving_listeners` must be `None` for an estimator with `fit`.")
    if isinstance(saving_listeners, str):
        return saving_listeners
    return check_members(
        "saving_listeners",
        saving_listeners,
        is_listener,
        _NO_ITERABLE,
        "`{name}` must be `CheckpointSaverListener` instances, found {value!r}{hint_or_stop}",
        ValueError,
    )
