"""What becomes of the functions of `fastsup.function` in a program that is watched, for `python -m fastsup doctor`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["FunctionNote", "end_notes", "note_function", "take_notes"]

_MOST_NOTES = 100
# None where no profiler is on.
_notes: list[FunctionNote] | None = None


@dataclass
class FunctionNote:
    """One ConcreteFunction: its executor, or why it isn't lifted.

    Args:
      name: the function's name.
      executor: the mode that runs it; "auto" while its trial goes on.
      seconds: seconds that a call takes, as "auto" has measured them; None if it has measured none.
      why_not_lifted: why it isn't lifted; "" for one that is.
      is_compiled: whether XLA compiles it as a whole.
    """

    name: str
    executor: str = "auto"
    seconds: float | None = None
    why_not_lifted: str = ""
    is_compiled: bool = False

    def take_choice(self, trial: Any) -> None:
        """Takes the executor that a trial has chosen."""
        self.executor, self.seconds = str(trial.executor), trial.seconds


def take_notes() -> list[FunctionNote]:
    """Begins to collect notes.

    Returns:
      The list to which notes are added, at most 100.
    """
    global _notes
    _notes = []
    return _notes


def end_notes() -> None:
    """Ends collecting."""
    global _notes
    _notes = None


@contextlib.contextmanager
def no_notes() -> Iterator[None]:
    """A `with` block in which no note is added."""
    global _notes
    notes, _notes = _notes, None
    try:
        yield
    finally:
        _notes = notes


def note_function(note: FunctionNote) -> None:
    """Adds a note where a profiler is on.

    Args:
      note: the note, which may change later.
    """
    notes = _notes
    if notes is not None and len(notes) < _MOST_NOTES:
        notes.append(note)
