"""The phases of a whole program: imports, building the model, opening sessions, training, saving, the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

__all__ = ["begin", "finish", "phase", "program_timeline", "set_program_timeline"]


class Phases(Protocol):
    """The receiver of the phases. `fastsup.profile` has one that adds them up."""

    def begin(self, name: str) -> Any:
        """Starts a phase, within the open ones. Returns the argument for `finish`."""

    def finish(self, entry: Any) -> None:
        """Ends a phase."""


_current: Phases | None = None


def program_timeline() -> Phases | None:
    """Returns the current receiver of the phases, or None."""
    return _current


def set_program_timeline(phases: Phases | None) -> None:
    """Sets the receiver of the phases, or None for no receiver."""
    global _current
    _current = phases


def begin(name: str) -> Any:
    """Starts a phase of the program's timeline. Does nothing without a timeline, or in another thread.

    Args:
      name: name of the phase.

    Returns:
      The argument for `finish`.
    """
    return None if _current is None else _current.begin(name)


def finish(entry: Any) -> None:
    """Ends a phase.

    Args:
      entry: the result of `begin`.
    """
    if entry is not None and _current is not None:
        _current.finish(entry)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Returns a context manager for a block that is a phase of the program's timeline.

    Args:
      name: name of the phase.
    """
    entry = begin(name)
    try:
        yield
    finally:
        finish(entry)
