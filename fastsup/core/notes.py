"""Notes on errors that pass: what the error itself can't know."""

from __future__ import annotations

import logging
import sys
from typing import Any

__all__ = ["add_note", "safe_repr"]

_logger = logging.getLogger("fastsup")


def add_note(error: BaseException, text: str) -> None:
    """Adds a note to an error, as `add_note` of Python 3.11, unless it has the same one. Type and text stay.

    Python 3.10 prints no notes: the text is also logged there.

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
        # An error that takes no attributes is still raised as it is.
        _logger.debug("An error takes no note: %s", failure)


def safe_repr(value: Any) -> str:
    """The `repr` of an object of the program's, for a message that must not raise in place of the error that passes.

    Args:
      value: the object.
    """
    try:
        return repr(value)
    except Exception:
        return object.__repr__(value)
