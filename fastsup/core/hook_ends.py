"""The end of a run: each hook's `end` is called, whatever the `end` of another hook raises."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["end_hooks"]


def end_hooks(hooks: Iterable[Any], end: Callable[[Any], Any], log_error: Callable[..., Any]) -> None:
    """Ends all hooks, and then raises the first error. The other errors are logged.

    Args:
      hooks: the hooks, in the order in which they end.
      end: function of a hook that calls its `end`.
      log_error: the `error` method of a logger.

    Raises:
      BaseException: the first error; but an interrupt (KeyboardInterrupt, SystemExit) goes before an error.
    """
    failed: list[tuple[Any, BaseException]] = []
    for hook in hooks:
        try:
            end(hook)
        except BaseException as error:  # noqa: PERF203
            failed.append((hook, error))
    if not failed:
        return
    # sorted() is stable: the first interrupt, else the first error.
    (_, raised), *others = sorted(failed, key=lambda entry: isinstance(entry[1], Exception))
    for hook, other in others:
        log_error("end() of the hook %r has failed, too.", hook, exc_info=other)
    raise raised
