"""How `run_loop` calls the function that makes the feeds of a step."""

from __future__ import annotations

import inspect
from typing import Any

# The parameter of this name gets the last result though it has a default.
_LAST_RESULT = "last_result"


def takes_last_result(feed_fn: Any) -> bool:
    """Whether a function that makes feeds wants the result of the step before.

    Args:
      feed_fn: the function.

    Returns:
      False for a function that can be called without arguments, unless its first parameter is named `last_result`.

    Raises:
      TypeError: the function can be called neither without arguments nor with one.
    """
    if not callable(feed_fn):
        raise TypeError(f"feed_fn must be callable or None, got {feed_fn!r}.")
    try:
        signature = inspect.signature(feed_fn)
    except (TypeError, ValueError):
        return False  # Some built-in functions have no signature: they are called as they always were.
    if next(iter(signature.parameters), None) != _LAST_RESULT and _can_take(signature):
        return False
    if _can_take(signature, None):
        return True
    raise TypeError(
        f"feed_fn must take no argument, or one: the result of the last step. Got {feed_fn!r} with the signature "
        f"{signature}."
    )


def _can_take(signature: inspect.Signature, *arguments: Any) -> bool:
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True
