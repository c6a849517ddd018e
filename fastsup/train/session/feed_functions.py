"""The signature of the function that makes the feeds of each step of `run_loop`."""

from __future__ import annotations

import inspect
from typing import Any

# A first parameter of this name gets the last result even if it has a default.
_LAST_RESULT = "last_result"


def takes_last_result(feed_fn: Any) -> bool:
    """Tells how to call a function that makes feeds.

    Args:
      feed_fn: the function.

    Returns:
      True if the function takes the result of the previous step. False if it can be called without arguments, unless
      its first parameter is named `last_result`.

    Raises:
      TypeError: `feed_fn` isn't callable, or can be called neither without arguments nor with one.
    """
    if not callable(feed_fn):
        raise TypeError(f"feed_fn must be callable or None, got {feed_fn!r}.")
    try:
        signature = inspect.signature(feed_fn)
    except (TypeError, ValueError):
        return False  # A built-in function without a signature is called without arguments.
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
