"""Reports errors to the hooks that define `on_error(run_context, exception)`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tensorflow.python.platform import tf_logging as logging

from fastsup.common.errors import is_end_of_input
from fastsup.core.errors import tell_hooks

# Attribute of an error: the hooks that were told of it. An error may pass several sessions, as that of an evaluation
# within a training does.
_TOLD = "_fastsup_told"


def report_error(hooks: Iterable[Any], run_context: Any, error: BaseException) -> None:
    """Calls the hooks' `on_error`, once for each error and hook. An error that a hook raises there is logged.

    Args:
      hooks: the hooks.
      run_context: the `SessionRunContext` of the failed run; None outside a run, or if no hook was called in the run.
      error: the error. OutOfRangeError and StopIteration end a loop normally and aren't reported.

    Raises:
      KeyboardInterrupt, SystemExit: a hook has raised it. All hooks were called.
    """
    if is_end_of_input(error):
        return
    told = error.__dict__.setdefault(_TOLD, [])
    untold = [hook for hook in hooks if not any(hook is other for other in told)]
    told += untold

    def log(hook: Any, another: Exception) -> None:
        # A hook of an old program may have a method of that name for another purpose.
        logging.error(
            "on_error of the hook %r has failed: %r. A session calls that method for each error. See "
            "`python -m fastsup docs dropin#hooks`.",
            hook,
            another,
            exc_info=another,
        )

    able = [hook for hook in untold if getattr(hook, "on_error", None) is not None]
    tell_hooks(able, lambda hook: hook.on_error(run_context, error), log)
