"""Checks of arguments that several Estimator methods share: hooks, listeners, numbers of steps."""

from __future__ import annotations

import math
from typing import Any

from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import basic_session_run_hooks, session_run_hook

from fastsup.core.checks import check_members, check_number
from fastsup.core.hook import LoopHook

__all__ = [
    "check_hooks",
    "check_input_fn",
    "check_listeners",
    "check_steps",
    "is_hook",
    "is_listener",
]

_NO_LIST = "{cause}: {name}={value!r} must be a list of %s objects."


def is_hook(value: Any) -> bool:
    """Returns True for a `fastsup.core.Hook`, or a `SessionRunHook` of TensorFlow's class or a subclass."""
    return isinstance(value, session_run_hook.SessionRunHook | LoopHook)


def is_listener(value: Any) -> bool:
    """Returns True for a `CheckpointSaverListener`, of TensorFlow's class or a subclass."""
    return isinstance(value, basic_session_run_hooks.CheckpointSaverListener)


def check_hooks(
    hooks: Any, name: str = "hooks", no_member: str = "Hooks must be a SessionRunHook, given: {value}{hint}"
) -> list[Any]:
    """Lists the hooks that were given for an argument."""
    return check_members(name, hooks, is_hook, _NO_LIST % "SessionRunHook", no_member)


def check_input_fn(input_fn: Any) -> None:
    """Rejects an input function that can't be called."""
    if not callable(input_fn):
        raise TypeError(
            f"`input_fn` must be callable, given: {input_fn!r}. Pass a function that returns a tf.data.Dataset, or the "
            "tensors (features, labels)."
        )


def check_listeners(saving_listeners: Any) -> list[Any]:
    """Lists the listeners that were given as `saving_listeners`."""
    return check_members(
        "saving_listeners",
        saving_listeners,
        is_listener,
        _NO_LIST % "CheckpointSaverListener",
        "saving_listeners must be a list of CheckpointSaverListener, given: {value}{hint}",
    )


def _is_whole_number(value: Any) -> bool:
    """Returns True for an integer, and for a float such as 1e5 that equals one."""
    return hasattr(value, "__index__") or (hasattr(value, "is_integer") and value.is_integer())


def check_steps(name: str, steps: Any, endless: bool = True) -> None:
    """Rejects a number of steps that isn't positive. Warns about a fraction of a step."""
    if steps is None:
        return
    no_integer = f"{name} must be an integer or None, given: {steps!r}"
    try:
        check_number(name, steps)
    except TypeError:
        raise TypeError(no_integer) from None
    if steps <= 0:
        raise ValueError(f"Must specify {name} > 0, given: {steps}. Pass None for no limit.")
    if _is_whole_number(steps):
        return
    if float(steps) < math.inf:
        logging.warning(
            "%s=%r isn't an integer: training ends at the first step that reaches that number. See "
            "`python -m fastsup docs dropin#estimator`.",
            name,
            steps,
        )
    elif not endless:
        raise TypeError(no_integer)


def check_type(name: str, value: Any, kind: type, optional: bool = False) -> None:
    """Rejects a value that isn't of one of the classes of `tf.estimator`."""
    if not isinstance(value, kind):
        be_none = "be either `None` or " if optional else ""
        raise TypeError(f"`{name}` must {be_none}have type `tf.estimator.{kind.__name__}`. Got: {type(value)}")
