"""Arguments of an Experiment, checked where they are given."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tensorflow.python.util import function_utils

__all__ = ["as_list", "as_predicate", "check_seconds"]


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
    """Refuses what is no number of seconds. None is what was not given."""
    for name, value in arguments.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
            raise ValueError(f"`{name}` must be a number of seconds, 0 or more. Got {value!r}.")


def as_list(name: str, members: Any) -> list[Any]:
    """The members of an iterable, or none if it is None."""
    try:
        return list(members or [])
    except TypeError:
        raise ValueError(f"`{name}` must be an iterable, or `None`. Got {members!r}.") from None
