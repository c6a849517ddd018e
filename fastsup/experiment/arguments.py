"""Arguments of an Experiment, checked where they are given.

Nothing passed is executed when it is made, and the reference's own tests pass names in place of functions, steps,
metrics and listeners, to see where they arrive. So a string is left to who gets it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import basic_session_run_hooks, session_run_hook
from tensorflow.python.util import function_utils

from fastsup.core.checks import doubt_about
from fastsup.core.hook_kinds import why_no_session_hook
from fastsup.estimator.model import estimator as estimator_lib

__all__ = [
    "as_hooks",
    "as_listeners",
    "as_predicate",
    "check_functions",
    "check_seconds",
    "check_steps",
    "is_core_estimator",
]


def is_core_estimator(estimator: Any, eval_metrics: Any) -> bool:
    """Whether it is an `Estimator`, and not one of the older kind. What is neither is refused.

    Args:
      estimator: what is to be trained.
      eval_metrics: metrics, which only an estimator of the older kind takes.

    Raises:
      ValueError: it is neither, or the metrics don't go with it.
    """
    if isinstance(estimator, estimator_lib.Estimator):
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
    """Refuses what can't be called. None is what was not given: not every task needs all of the data."""
    for name, value in arguments.items():
        if value is not None and not callable(value) and not isinstance(value, str):
            raise ValueError(f"`{name}` must be a function that returns the data, or `None`. Got {value!r}.")


def as_predicate(function: Any) -> Callable[[Any, Any], Any]:
    """A predicate of the evaluation's result and the checkpoint's path, from one of the first or of both."""
    if function is None:
        return lambda eval_results, checkpoint_path: True
    if not callable(function):
        raise ValueError(f"`continuous_eval_predicate_fn` must be a callable, or None. Got {function!r}.")
    if "checkpoint_path" in function_utils.fn_args(function):
        return lambda eval_results, checkpoint_path: function(eval_results, checkpoint_path=checkpoint_path)
    return lambda eval_results, checkpoint_path: function(eval_results)


def check_seconds(**arguments: Any) -> None:
    """Refuses what is no number of seconds. None is what was not given. A negative one, and NaN, are no wait."""
    for name, value in arguments.items():
        if value is None:
            continue
        if not isinstance(value, Real) or value == math.inf:
            raise ValueError(f"`{name}` must be a number of seconds, 0 or more. Got {value!r}.")
        doubt = doubt_about(f"`{name}`", value, "nothing is waited for", "nothing is waited for")
        if doubt is not None:
            logging.warning(doubt)


def check_steps(positive: bool, **arguments: Any) -> None:
    """Refuses what is no number of steps. None is what was not given. A fraction of a step is a whole one.

    Args:
      positive: whether 0 steps and less are refused too.
      **arguments: the arguments by their names.
    """
    for name, value in arguments.items():
        if value is None or isinstance(value, str):
            continue
        if not isinstance(value, Real) and not hasattr(value, "__index__"):
            raise ValueError(f"`{name}` must be an integer, or `None`. Got {value!r}.")
        if positive and value <= 0:
            raise ValueError(f"`{name}` must be positive. Got {value!r}.")
        if not positive and value < 0:
            logging.warning("`%s`=%r is negative, and taken for 1. Pass 0 for none.", name, value)


def _as_list(name: str, members: Any) -> list[Any]:
    """The members of an iterable, or none if it is None."""
    try:
        return list(members or [])
    except TypeError:
        raise ValueError(f"`{name}` must be an iterable, or `None`. Got {members!r}.") from None


def as_hooks(name: str, members: Any, for_core_estimator: bool = True) -> list[Any]:
    """The members of an iterable of hooks, or none if it is None.

    Args:
      name: name of the argument.
      members: the iterable.
      for_core_estimator: whether they are for an `Estimator`. One of the older kind takes monitors too: what has the
        methods `begin` and `end`.

    Raises:
      ValueError: it is no iterable, or one of them is no hook.
    """
    hooks = _as_list(name, members)
    for hook in hooks:
        if isinstance(hook, session_run_hook.SessionRunHook):
            continue
        if for_core_estimator or not all(callable(getattr(hook, method, None)) for method in ("begin", "end")):
            why = why_no_session_hook(hook) or "."
            raise ValueError(f"`{name}` must be `SessionRunHook` instances, found {hook!r}{why}")
    return hooks


def as_listeners(saving_listeners: Any, for_core_estimator: bool) -> list[Any] | str | None:
    """The members of an iterable of `CheckpointSaverListener`s, or None.

    Raises:
      ValueError: it is no iterable, one of them is no listener, or the estimator doesn't take any.
    """
    if saving_listeners is None:
        return None
    if not for_core_estimator:
        raise ValueError("`saving_listeners` must be `None` for an estimator with `fit`.")
    if isinstance(saving_listeners, str):
        return saving_listeners
    listeners = _as_list("saving_listeners", saving_listeners)
    for listener in listeners:
        if not isinstance(listener, basic_session_run_hooks.CheckpointSaverListener):
            raise ValueError(f"`saving_listeners` must be `CheckpointSaverListener` instances, found {listener!r}.")
    return listeners
