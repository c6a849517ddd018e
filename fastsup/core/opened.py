"""Who opens a session: the call and the line of the program, by which a profile tells sessions apart."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import FrameType

__all__ = ["NOBODY", "Opened", "opened_here", "opening"]

# Frames of these packages aren't the program's own.
_LIBRARIES = frozenset({"fastsup", "tensorflow", "contextlib", "functools"})
# How many lines of the program, from the opening call outwards, tell two sessions apart.
_LINES = 6

_role: ContextVar[str] = ContextVar("fastsup session role", default="")


@dataclass(frozen=True)
class Opened:
    """Who has opened a session.

    Args:
      kind: the call that has opened it: "MonitoredTrainingSession", "Estimator.train".
      role: "train", "evaluate" or "predict"; "run" where nothing says what the session is for.
      place: the file's name and the line of the call: "train.py:31".
      library: the package that the call belongs to: "fastsup" or "tensorflow".
      lines: the lines of the program that were under way, from the call outwards.
    """

    kind: str
    role: str = "run"
    place: str = ""
    library: str = "fastsup"
    lines: tuple[tuple[str, int], ...] = ()


NOBODY = Opened("")


@contextmanager
def opening(role: str) -> Iterator[None]:
    """Says what the sessions are for that are opened in a block.

    Args:
      role: "train", "evaluate" or "predict".
    """
    token = _role.set(role)
    try:
        yield
    finally:
        _role.reset(token)


def opened_here(role: str = "run", kind: str = "") -> Opened:
    """Who opens a session now: the outermost call of a library, and the line of the program that makes it.

    Args:
      role: what the session is for, unless `opening` says something else.
      kind: the name of a compiled call, which is in no frame of Python's.
    """
    call: FrameType | None = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _package(frame) in _LIBRARIES:
        # A wrapper of TensorFlow's around its own function has no name that says anything.
        package, wraps = _package(frame), "/util/" in frame.f_code.co_filename
        if package == "fastsup" or (package == "tensorflow" and not wraps):
            call = frame
        frame = frame.f_back
    lines: list[tuple[str, int]] = []
    while frame is not None and len(lines) < _LINES and _package(frame) != "fastsup":
        lines.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    place = f"{os.path.basename(lines[0][0])}:{lines[0][1]}" if lines else ""
    library = "fastsup" if call is None else _package(call)
    return Opened(kind if call is None else _name(call), _role.get() or role, place, library, tuple(lines))


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _name(frame: FrameType) -> str:
    """The name of a call: that of the class for a constructor, with its class for another method."""
    function, owner = frame.f_code.co_name, frame.f_locals.get("self")
    if owner is None:
        return function
    return type(owner).__name__ if function == "__init__" else f"{type(owner).__name__}.{function}"
