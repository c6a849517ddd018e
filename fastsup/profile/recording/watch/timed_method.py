"""Replaces a callback's method while a pass is recorded. Pure Python, which costs less to call than Cython."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

from fastsup.core.probe import RECORDS_METHOD

__all__ = ["timed_method"]


class _Span(Protocol):
    def enter(self) -> Callable[..., Any] | None: ...
    def leave(self) -> None: ...


def timed_method(span: _Span, method: Callable[..., Any]) -> Callable[..., Any]:
    """Creates the replacement of a callback's method.

    Args:
      span: the `TimedMethod` to notify of calls.
      method: the method.
    """
    enter, leave = span.enter, span.leave

    def call(*args: Any, **kwargs: Any) -> Any:
        elsewhere = enter()
        if elsewhere is not None:
            return elsewhere(*args, **kwargs)
        try:
            return method(*args, **kwargs)
        finally:
            leave()

    if hasattr(method, "__name__"):
        functools.update_wrapper(call, method)
    setattr(call, RECORDS_METHOD, method)
    return call
