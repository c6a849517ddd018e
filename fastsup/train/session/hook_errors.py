"""Telling hooks of an error: those that define `on_error(run_context, exception)`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tensorflow.python.framework import errors
from tensorflow.python.platform import tf_logging as logging

# How a loop ends that is done: no errors.
_NORMAL_ENDS = (errors.OutOfRangeError, StopIteration)
_MARK = "_fastsup_hooks_know"


def report_error(hooks: Iterable[Any], run_context: Any, error: BaseException) -> None:
    """Calls the hooks' `on_error`, once for each error. What one of them raises is logged, not raised.

    Args:
      hooks: the hooks.
      run_context: the `SessionRunContext` of the run that has failed; None outside a run, and where no hook was called.
      error: the error. The end of the input (OutOfRangeError, StopIteration) is none.
    """
    if isinstance(error, _NORMAL_ENDS) or getattr(error, _MARK, False):
        return
    error.__dict__[_MARK] = True
    for hook in list(hooks):
        on_error = getattr(hook, "on_error", None)
        if on_error is None:
            continue
        try:
            on_error(run_context, error)
        except Exception as another:
            logging.error("on_error of the hook %r has failed: %r", hook, another)
