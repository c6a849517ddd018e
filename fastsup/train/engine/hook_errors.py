"""Reports errors to the hooks that define `on_error(run_context, exception)`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tensorflow.python.platform import tf_logging as logging

from fastsup.common.tensorflow_errors import is_end_of_input
from fastsup.core.hook_ends import tell_hooks

# Attribute of an error that was reported.
_REPORTED = "_fastsup_reported"


def report_error(hooks: Iterable[Any], run_context: Any, error: BaseException) -> None:
    """Calls the hooks' `on_error`, once for each error. An error that a hook raises there is logged.

    Args:
      hooks: the hooks.
      run_context: the `SessionRunContext` of the failed run; None outside a run, or if no hook was called in the run.
      error: the error. OutOfRangeError and StopIteration end a loop normally and aren't reported.

    Raises:
      KeyboardInterrupt, SystemExit: a hook has raised it. All hooks were called.
    """
    if is_end_of_input(error) or getattr(error, _REPORTED, False):
        return
    error.__dict__[_REPORTED] = True

    def log(hook: Any, another: Exception) -> None:
        # A hook of an old program may have a method of that name for another purpose.
        logging.error(
            "on_error of the hook %r has failed: %r. A session calls that method for each error. See "
            "docs/dropin.md#hooks.",
            hook,
            another,
            exc_info=another,
        )

    told = [hook for hook in hooks if getattr(hook, "on_error", None) is not None]
    tell_hooks(told, lambda hook: hook.on_error(run_context, error), log)
