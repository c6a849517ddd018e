"""Names that are likely misspelt: keyword arguments of loops and hooks, and callbacks of hooks."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches
from typing import Any

from fastsup.core.notes import safe_repr

__all__ = ["check_keywords", "misspelt_callbacks"]

# What a loop calls, or in `act` a PeriodicHook.
_CALLBACKS = ("begin", "after_step", "after_steps", "end", "on_error", "act")
# Callbacks of other kinds of hooks, each with what does the same in a hook of loops that is written in Python.
_ELSEWHERE = {"on_due": "after_step", "after_run": "after_step"}
# As alike as "after_step" and "after_stop". The names "log_error" and "on_error" are less alike.
_ALIKE = 0.85


def check_keywords(kind: type, given: Iterable[str]) -> None:
    """Refuses a misspelt keyword argument of a constructor, as Python 3.13 does, with the nearest name.

    Python itself refuses a name that is near to none.

    Args:
      kind: the class.
      given: names of the keyword arguments that its constructor was called with.

    Raises:
      TypeError: the constructor takes no argument of a name, and has one of a similar name.
    """
    taken = _keywords_of(kind)
    for name in given:
        if taken is None or name in taken:
            continue
        near = get_close_matches(name.lower(), taken, 1)
        if near:
            raise TypeError(
                f"{kind.__qualname__}.__init__() got an unexpected keyword argument {name!r}. Did you mean {near[0]!r}?"
            )


def _keywords_of(kind: type) -> list[str] | None:
    """The keyword arguments that a constructor takes; None if it may take any."""
    if isinstance(kind.__new__, types.FunctionType):
        return None  # It may change what the constructor gets.
    init: Any = kind.__init__  # type: ignore[misc]
    if not isinstance(init, types.FunctionType):
        # A compiled one: its class has the signature, if its author has written one down.
        init = getattr(init, "__objclass__", None)
        if getattr(init, "__text_signature__", None) is None:
            return None
    parameters = list(inspect.signature(init).parameters.values())
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return [parameter.name for parameter in parameters if parameter.kind is not parameter.POSITIONAL_ONLY]


def misspelt_callbacks(hook: Any) -> list[str]:
    """Warnings of methods that a program's hook defines, that no loop calls, and that look like a callback.

    Args:
      hook: a hook of loops.
    """
    from fastsup.core.hook import LoopHook

    # Classes of hooks that aren't fastsup's own.
    mine = [kind for kind in type(hook).__mro__ if issubclass(kind, LoopHook) and not _is_ours(kind)]
    others = [kind for kind in type(hook).__mro__ if kind not in mine]
    defined: dict[str, Any] = {}
    for kind in reversed(mine):
        defined.update(vars(kind))
    warnings = []
    for name, value in defined.items():
        if name.startswith("_") or not isinstance(value, types.FunctionType):
            continue
        # What another base class has too, is for that class.
        callback = None if any(name in vars(kind) for kind in others) else _callback_like(name, type(hook))
        # A hook that has the callback has the other method for something else.
        if callback is not None and callback not in defined and not _has_own(hook, callback):
            warnings.append(
                f"No loop calls {type(hook).__name__}.{name} of the hook {safe_repr(hook)}. Rename it to {callback}, "
                "if that is meant."
            )
    return warnings


def _has_own(hook: Any, name: str) -> bool:
    """True if an object has an attribute in place of its class's method.

    Python is slower with an object whose `__dict__` was looked at.
    """
    method = getattr(hook, name)
    return getattr(method, "__func__", method) is not getattr(type(hook), name)


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "fastsup"


def _callback_like(name: str, kind: type) -> str | None:
    callbacks = [callback for callback in _CALLBACKS if hasattr(kind, callback)]
    plain = name.replace("_", "").lower()
    for callback in callbacks:
        if plain == callback.replace("_", ""):
            return callback
    # Short names are like many others.
    near = [(SequenceMatcher(None, name, callback).ratio(), callback) for callback in callbacks if len(callback) > 4]
    ratio, callback = max(near)
    return callback if ratio >= _ALIKE else _ELSEWHERE.get(name)
