"""The hooks that a session is given: checks of the argument, and the order of their `end`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastsup.core.hook_kinds import why_no_session_hook

__all__ = ["check_hook", "hooks_argument", "sorted_for_end"]


def hooks_argument(name: str, hooks: Any) -> Any:
    """Checks the hooks that were given for an argument.

    Args:
      name: name of the argument, for the message.
      hooks: an iterable of hooks, or None for no hooks.

    Returns:
      `hooks`; an empty list for None.

    Raises:
      TypeError: `hooks` can't be iterated over.
    """
    try:
        iter(hooks or [])
    except TypeError as error:
        raise TypeError(f"{error}: {name}={hooks!r} must be a list of SessionRunHook objects.") from None
    return hooks or []


def check_hook(hook: Any) -> None:
    """Refuses an object that is no session-run hook.

    Args:
      hook: the object that was given for a hook.

    Raises:
      TypeError: `hook` is a hook of `StepLoop`, or a class.
      AttributeError: `hook` has no `begin`.
    """
    why = why_no_session_hook(hook)
    if why:
        missing = f"{hook.begin.__qualname__}() missing 1 required positional argument: "
        missing += "'self'" if isinstance(hook, type) else "'loop'"
        raise TypeError(f"{missing}: hooks must be SessionRunHook objects, got {hook!r}{why}")
    if not hasattr(hook, "begin"):
        raise AttributeError(
            f"{type(hook).__name__!r} object has no attribute 'begin': hooks must be SessionRunHook objects, got "
            f"{hook!r}."
        )


def sorted_for_end(hooks: Iterable[Any]) -> list[Any]:
    """Sorts hooks into the order in which their `end` is called: their own order, then the hooks with `_ends_last`.

    Args:
      hooks: the hooks of a session.
    """
    return sorted(hooks, key=lambda hook: getattr(hook, "_ends_last", False) is True)
