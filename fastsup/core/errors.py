"""Errors that pass through a loop: adds notes, and calls every hook's `on_error` or `end` even if another raises."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["add_note", "end_all_hooks", "is_from_call", "notify_hooks", "safe_repr"]

_logger = logging.getLogger("fastsup")


def add_note(error: BaseException, text: str) -> None:
    """Adds a note to an error, like `add_note` of Python 3.11, unless it already has the same note.

    Python 3.10 doesn't print notes, so the text is also logged there.

    Args:
      error: the error.
      text: the note.
    """
    notes = getattr(error, "__notes__", ())
    try:
        if text in notes:
            return  # A step may raise the same object in each call.
        if sys.version_info >= (3, 11):
            error.add_note(text)
        else:
            error.__notes__ = [*notes, text]  # type: ignore[attr-defined]
            _logger.error("%s %s: %s", text, type(error).__name__, error)
    except Exception as failure:
        # An error that accepts no attributes is still raised unchanged.
        _logger.debug("Can't add a note to the error: %s", failure)


def is_from_call(error: TypeError) -> bool:
    """Returns True if a call didn't accept its arguments. If the called function raised the error, returns False.

    Args:
      error: the error. The caller has caught it in the function that makes the call.
    """
    return error.__traceback__ is not None and error.__traceback__.tb_next is None


def safe_repr(value: Any) -> str:
    """Returns the `repr` of a user's object, for a message that must not raise an error itself.

    Args:
      value: the object.
    """
    try:
        return repr(value)
    except Exception:
        return object.__repr__(value)


def end_all_hooks(
    hooks: Iterable[Any], end: Callable[[Any], Any], log_error: Callable[..., Any], what: str = "end() of the hook"
) -> None:
    """Ends all hooks, and then raises the first error. Other errors are logged.

    Args:
      hooks: the hooks, in the order in which they end.
      end: function of a hook that calls its `end`.
      log_error: the `error` method of a logger.
      what: name of the callback in the log.

    Raises:
      BaseException: The first interrupt (KeyboardInterrupt, SystemExit), or otherwise the first error.
    """
    failed: list[tuple[Any, BaseException]] = []
    for hook in hooks:
        try:
            end(hook)
        except BaseException as error:  # noqa: PERF203
            failed.append((hook, error))
    if not failed:
        return
    # sorted() is stable, so this is the first interrupt, or otherwise the first error.
    (_, raised), *others = sorted(failed, key=lambda entry: isinstance(entry[1], Exception))
    for hook, other in others:
        log_error("%s %r also failed.", what, hook, exc_info=other)
    raise raised


def _log_failed_on_error(hook: Any, error: Exception) -> None:
    _logger.error("on_error of the hook %r failed", hook, exc_info=error)


def notify_hooks(
    hooks: Iterable[Any],
    tell: Callable[[Any], Any],
    log: Callable[[Any, Exception], Any] = _log_failed_on_error,
) -> None:
    """Reports an error to all hooks. Errors that they raise are logged. The first interrupt is raised afterwards.

    Args:
      hooks: the hooks.
      tell: function that calls a hook's `on_error`.
      log: function of a hook and the error that it raised.

    Raises:
      KeyboardInterrupt, SystemExit: If a hook raised it.
    """
    interrupt: BaseException | None = None
    for hook in hooks:
        try:
            tell(hook)
        except Exception as error:  # noqa: PERF203
            log(hook, error)
        except BaseException as error:
            interrupt = interrupt or error
    if interrupt is not None:
        raise interrupt
