"""The life of what belongs to an eager context: it may be deleted only as long as that context's runtime is there."""

from __future__ import annotations

import os
from collections.abc import Callable

from tensorflow.python.eager import context

from fastsup.common.interpreter_end import completed_before_exit

__all__ = ["OfEagerContext"]


class OfEagerContext:
    """Base of what belongs to the eager context that there is when it is made."""

    # An object may be deleted when the names of this module are gone.
    _process: Callable[[], int] = staticmethod(os.getpid)
    _context_names = vars(context)
    _completed_before_exit = completed_before_exit

    def _take_context(self) -> None:
        """Records the process and the context. To be called before anything can fail."""
        self._made_in = os.getpid()
        self._made_for = context.context()

    def _usable(self) -> bool:
        """Whether the runtime that the object belongs to is there: not in a child process, nor after its context."""
        return (
            self._process() == self._made_in
            and self._context_names.get("_context") is self._made_for
            and not self._completed_before_exit.is_over_for_this_thread()
        )
