"""The hooks that a session is given: checks of the argument, and the order of their `end`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastsup.core.checks import hint_for_class
from fastsup.core.hook import LoopHook
from fastsup.train.hooks.adapted_hook import AdaptedHook

__all__ = ["check_hook", "hooks_argument", "sorted_for_end"]


def hooks_argument(name: str, hooks: Any) -> Any:
    """Checks the hooks that were given for an argument, and adapts those of step loops.

    Args:
      name: name of the argument, for the message.
      hooks: an iterable of hooks, or None for no hooks.

    Returns:
      `hooks`, or a list with an `AdaptedHook` in the place of each hook of step loops; an empty list for None.

    Raises:
      TypeError: `hooks` can't be iterated over.
    """
    try:
        once_only = iter(hooks or []) is hooks
    except TypeError as error:
        raise TypeError(f"{error}: {name}={hooks!r} must be a list of SessionRunHook objects.") from None
    # A generator gives its hooks to one loop over them, their `begin`, as in TensorFlow.
    if hooks and not once_only and any(map(_is_of_loops, hooks)):
        return [AdaptedHook(hook) if _is_of_loops(hook) else hook for hook in hooks]
    return hooks or []


def _is_of_loops(hook: Any) -> bool:
    """True for a hook of step loops that isn't a hook of sessions too."""
    return isinstance(hook, LoopHook) and not hasattr(hook, "before_run")


def check_hook(hook: Any) -> None:
    """Refuses an object that isn't a session-run hook.

    Args:
      hook: the object that was given for a hook.

    Raises:
      TypeError: `hook` is a class, or a hook of step loops that isn't adapted.
      AttributeError: `hook` has no `begin`.
    """
    hint = hint_for_class(hook)
    if hint:
        raise TypeError(
            f"{hook.begin.__qualname__}() missing 1 required positional argument: 'self': hooks must be SessionRunHook "
            f"objects, got {hook!r}{hint}"
        )
    if _is_of_loops(hook):
        raise TypeError(
            f"{type(hook).__name__}.begin() missing 1 required positional argument: 'loop': {hook!r} is a "
            "fastsup.core.Hook. Pass a list of hooks, or fastsup.train.AdaptedHook(hook)."
        )
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
