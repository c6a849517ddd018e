"""A session's description in a profile: the call that opened it, and the executors of its steps."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import FrameType
from typing import NamedTuple

from fastsup.core import checks

__all__ = ["NO_ORIGIN", "PlanExecutor", "SessionOrigin", "current_origin", "origin_of_call", "session_role"]

# Packages whose frames don't belong to the program.
_LIBRARIES = frozenset({"fastsup", "tensorflow", "keras", "tf_keras", "contextlib", "functools"})
# Number of program lines, from the opening call outwards, that distinguish two sessions.
_LINES = 6

_role: ContextVar[str] = ContextVar("fastsup session role", default="")


@dataclass(frozen=True)
class SessionOrigin:
    """The origin of a session. Sessions with equal origins share their rows in a profile.

    Args:
      kind: name of the call that opens it: "MonitoredTrainingSession", "Estimator.train".
      role: "train", "evaluate", "predict", or "run" if the session's purpose is unknown.
      place: file name and line of the call: "train.py:31".
      library: the package of the call: "fastsup" or "tensorflow".
      lines: (path, line) of the program's frames, from the call outwards.
    """

    kind: str
    role: str = "run"
    place: str = ""
    library: str = "fastsup"
    lines: tuple[tuple[str, int], ...] = ()


NO_ORIGIN = SessionOrigin("")


@contextmanager
def session_role(role: str) -> Iterator[None]:
    """Sets the role of the sessions that are opened in a block.

    Args:
      role: "train", "evaluate" or "predict", or "" for the role given by the code that opens the session.
    """
    token = _role.set(role)
    try:
        yield
    finally:
        _role.reset(token)


def current_origin(role: str = "run", kind: str = "") -> SessionOrigin:
    """Finds the origin of a session that is being opened: the outermost library call, and its line.

    Args:
      role: the session's role, unless `session_role` has set another one.
      kind: name of a compiled call, which has no Python frame.

    Returns:
      The origin.
    """
    call: FrameType | None = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _package(frame) in _LIBRARIES:
        # Wrappers around functions have names without meaning to the user.
        package, name = _package(frame), frame.f_globals.get("__name__")
        if (package == "fastsup" and name != checks.__name__) or (
            package == "tensorflow" and "/util/" not in frame.f_code.co_filename
        ):
            call = frame
        frame = frame.f_back
    lines = _program_lines(frame)
    library = "fastsup" if call is None else _package(call)
    return SessionOrigin(kind if call is None else _name(call), _role.get() or role, _place(lines), library, lines)


def origin_of_call(kind: str, role: str, frame: FrameType | None, library: str) -> SessionOrigin:
    """Returns the origin of a call that runs all steps of a loop, or one step.

    Args:
      kind: name of the call.
      role: its purpose.
      frame: the frame of the call. Library frames are omitted.
      library: the package of the call.
    """
    while frame is not None and _package(frame) in _LIBRARIES:
        frame = frame.f_back
    lines = _program_lines(frame)
    return SessionOrigin(kind, role, _place(lines), library, lines)


def _program_lines(frame: FrameType | None) -> tuple[tuple[str, int], ...]:
    """Returns the program's lines that lead to a call, as (path, line), from the call outwards."""
    lines: list[tuple[str, int]] = []
    while frame is not None and len(lines) < _LINES and _package(frame) != "fastsup":
        lines.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(lines)


def _place(lines: tuple[tuple[str, int], ...]) -> str:
    return f"{os.path.basename(lines[0][0])}:{lines[0][1]}" if lines else ""


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _name(frame: FrameType) -> str:
    """Returns the name of a call: the class for a constructor, class and method for a method, or the function."""
    function, owner = frame.f_code.co_name, frame.f_locals.get("self")
    if owner is None:
        return function
    return type(owner).__name__ if function == "__init__" else f"{type(owner).__name__}.{function}"


class PlanExecutor(NamedTuple):
    """The executor of one combination of fetches and feeds that a session has compiled.

    Args:
      fetches: names of the fetched tensors and of the operations that run, including those of hooks.
      feeds: names of the fed tensors.
      executor: the current mode: "thread_pool", "inline" or "single_threaded".
      on_trial: True while the executor is undecided: during a trial, and until the first trial starts.
      seconds: median seconds per run in that mode in its trial, or None if no run was timed.
    """

    fetches: tuple[str, ...]
    feeds: tuple[str, ...]
    executor: str
    on_trial: bool
    seconds: float | None
