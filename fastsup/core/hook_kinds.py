"""Checks of arguments that are lists of hooks, and hints for a hook of the wrong kind.

There are two kinds: hooks of a session and hooks of a `StepLoop`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from fastsup.core.hook import LoopHook

__all__ = ["check_members", "why_no_loop_hook", "why_no_session_hook"]

_FOR_SESSIONS = {
    "CheckpointHook": "fastsup.train.CheckpointSaverHook",
    "NanGuardHook": "fastsup.train.NanTensorHook",
    "ProgressHook": "fastsup.train.ProgressHook",
    "StopAtStepHook": "fastsup.train.StopAtStepHook",
    "StopWhenHook": "fastsup.estimator.make_early_stopping_hook",
    "SummaryHook": "fastsup.train.SummarySaverHook",
    "TimeLimitHook": "fastsup.estimator.StopAtSecsHook",
}
_FOR_LOOPS = {
    "CheckpointSaverHook": "fastsup.loop.CheckpointHook",
    "LoggingTensorHook": "fastsup.loop.ProgressHook",
    "NanTensorHook": "fastsup.loop.NanGuardHook",
    "ProgressHook": "fastsup.loop.ProgressHook",
    "StepCounterHook": "fastsup.loop.ProgressHook",
    "StopAtSecsHook": "fastsup.loop.TimeLimitHook",
    "StopAtStepHook": "fastsup.loop.StopAtStepHook",
    "SummarySaverHook": "fastsup.loop.SummaryHook",
}


def _counterpart(kind: type, names: dict[str, str]) -> str | None:
    """The hook of the other kind for a class, found by the name of the class or of one of its bases."""
    return next((names[base.__name__] for base in kind.__mro__ if base.__name__ in names), None)


def _why_no_object(kind: type) -> str:
    """The hint for a class. A class is a valid hook of a session if its `begin` takes no object: a static method."""
    try:
        arguments = inspect.signature(kind.begin).parameters  # type: ignore[attr-defined]
    except (AttributeError, TypeError, ValueError):
        return ""
    if not arguments:
        return ""
    return f". {kind.__name__} is a class: pass an object, {kind.__name__}(...)."


def why_no_session_hook(hook: Any) -> str:
    """The hint for an object that was given in place of a hook of a session.

    Args:
      hook: the object.

    Returns:
      Text to append to an error; "" unless the object is a hook of a `StepLoop` or a hook's class.
    """
    if inspect.isclass(hook):
        return _why_no_object(hook)
    if not isinstance(hook, LoopHook) or hasattr(hook, "before_run"):
        return ""
    right = _counterpart(type(hook), _FOR_SESSIONS)
    use = "Subclass fastsup.train.SessionRunHook for" if right is None else f"Use {right} in"
    return f". {type(hook).__name__} is a hook of fastsup.core.StepLoop. {use} a session."


def why_no_loop_hook(hook: Any) -> str:
    """The hint for an object that was given in place of a hook of a `StepLoop`.

    Args:
      hook: the object.

    Returns:
      Text to append to an error; "" unless the object is a hook of a session or a hook's class.
    """
    if inspect.isclass(hook):
        return _why_no_object(hook)
    if not hasattr(hook, "before_run"):
        return ""
    right = _counterpart(type(hook), _FOR_LOOPS)
    use = "Subclass fastsup.core.Hook for" if right is None else f"Use {right} in"
    return f". {type(hook).__name__} is a hook of sessions. {use} a StepLoop."


def check_members(
    name: str,
    members: Any,
    accepts: Callable[[Any], bool],
    no_iterable: str,
    no_member: str,
    error_type: type[Exception] = TypeError,
) -> list[Any]:
    """Lists the hooks, or the listeners, that were given for an argument, and refuses what isn't one.

    The messages are templates for `str.format`, because TensorFlow has its own text for each argument.

    Args:
      name: name of the argument.
      members: value of the argument: an iterable, or None.
      accepts: predicate of a member.
      no_iterable: message for a value that isn't iterable. Fields: `name`, `value`, and `cause`, Python's error.
      no_member: message for a refused member. Fields: `name`, `value` (the member), `hint` (see `why_no_session_hook`),
        and `hint_or_stop`, which is "." where there is no hint.
      error_type: class of the error.

    Returns:
      The members; an empty list for None.

    Raises:
      Exception: an error of `error_type`: the value isn't iterable, or a member is refused.
    """
    try:
        found = list(members or [])
    except TypeError as cause:
        raise error_type(no_iterable.format(name=name, value=members, cause=cause)) from None
    for member in found:
        if not accepts(member):
            hint = why_no_session_hook(member)
            raise error_type(no_member.format(name=name, value=member, hint=hint, hint_or_stop=hint or "."))
    return found
