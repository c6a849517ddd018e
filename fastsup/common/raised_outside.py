"""Tells errors of a program's own code, such as a signal handler, from those of the libraries that it interrupts."""

from __future__ import annotations

import sys

__all__ = ["is_raised_outside"]

_LIBRARIES = sys.stdlib_module_names | {"fastsup", "tensorflow", "keras", "google", "numpy", "absl", "wrapt"}


def is_raised_outside(error: BaseException) -> bool:
    """Whether an exception comes from the program: from a signal handler, if the code that failed calls only libraries.

    A signal handler runs between any two instructions of the main thread. A block that falls back to something else
    after any error of a library must not take the error of a handler, a time limit say, for one.

    Args:
      error: the exception, where it is caught.
    """
    traceback = error.__traceback__
    while traceback is not None:
        module = traceback.tb_frame.f_globals.get("__name__") or ""
        if module.partition(".")[0] not in _LIBRARIES:
            return True
        traceback = traceback.tb_next
    return False
