"""Names the right hook where a hook of the other kind was given: a session's to a `StepLoop`, a loop's to a session."""

from __future__ import annotations

import inspect
from typing import Any

from fastsup.core.hook import LoopHook

__all__ = ["why_no_loop_hook", "why_no_session_hook"]

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
    """The hook of the other kind for a class, found by the class's name or that of one of its bases."""
    return next((names[base.__name__] for base in kind.__mro__ if base.__name__ in names), None)


def _why_no_object(kind: type) -> str:
    """A class can be a hook of a session if its `begin` takes no object, as a static method does."""
    try:
        arguments = inspect.signature(kind.begin).parameters  # type: ignore[attr-defined]
    except (AttributeError, TypeError, ValueError):
        return ""
    if not arguments:
        return ""
    return f". {kind.__name__} is a class: pass an object, {kind.__name__}(...)."


def why_no_session_hook(hook: Any) -> str:
    """Says why an object can't be a hook of a session, and which class can.

    Args:
      hook: what was given in place of a `SessionRunHook`.

    Returns:
      Text to append to an error; "" for an object that isn't known to be a hook of a `StepLoop`.
    """
    if inspect.isclass(hook):
        return _why_no_object(hook)
    if not isinstance(hook, LoopHook) or hasattr(hook, "before_run"):
        return ""
    right = _counterpart(type(hook), _FOR_SESSIONS)
    use = "Subclass fastsup.train.SessionRunHook for" if right is None else f"Use {right} in"
    return f". {type(hook).__name__} is a hook of fastsup.core.StepLoop. {use} a session."


def why_no_loop_hook(hook: Any) -> str:
    """Says why an object can't be a hook of a `StepLoop`, and which class can.

    Args:
      hook: what was given in place of a `fastsup.core.Hook`.

    Returns:
      Text to append to an error; "" for an object that isn't known to be a hook of a session.
    """
    if inspect.isclass(hook):
        return _why_no_object(hook)
    if not hasattr(hook, "before_run"):
        return ""
    right = _counterpart(type(hook), _FOR_LOOPS)
    use = "Subclass fastsup.core.Hook for" if right is None else f"Use {right} in"
    return f". {type(hook).__name__} is a hook of sessions. {use} a StepLoop."
