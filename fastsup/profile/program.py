"""Observes a whole program during profiling: its timeline, its imports, and the sessions that aren't recorded."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

from fastsup.core.sessions import SessionOrigin, current_origin
from fastsup.eager.function_notes import FunctionNote
from fastsup.profile.recording.phases import Timeline

__all__ = ["Program"]

# The module with Python's import function, which the standard library doesn't document.
_bootstrap: Any = import_module("importlib._bootstrap")

_MOST_SESSIONS = _MOST_FUNCTIONS = 100
_TF_SESSION = "tensorflow.python.client.session"
# TensorFlow's counter of new sessions, in the session module.
_COUNTER = "_python_session_create_counter"


class Program:
    """Observes the program from `start` to `stop`, which the thread that runs the program must call."""

    def __init__(self) -> None:
        self.timeline: Timeline = Timeline()
        self._sessions: dict[SessionOrigin, None] = {}
        #: The `fastsup.function` functions that the program has called.
        self.functions: list[FunctionNote] = []
        self._find_and_load: Callable[..., Any] | None = None
        self._counter: Any = None

    @property
    def plain_sessions(self) -> list[SessionOrigin]:
        """The origins of sessions that no profile contains: TensorFlow's own, and fastsup's plain ones."""
        return list(self._sessions)

    def note_function(self, note: FunctionNote) -> None:
        """Records the status of a function, up to 100 functions."""
        if len(self.functions) < _MOST_FUNCTIONS:
            self.functions.append(note)

    def start(self) -> None:
        """Starts to observe the program."""
        self.timeline = Timeline()
        self.timeline.start()
        self._watch_sessions()
        self._watch_imports()

    def stop(self) -> None:
        """Stops observing, and restores Python's import and TensorFlow's counter."""
        self.timeline.stop()
        if self._find_and_load is not None:
            _bootstrap._find_and_load, self._find_and_load = self._find_and_load, None
        if self._counter is not None:
            setattr(sys.modules[_TF_SESSION], _COUNTER, self._counter.counter)
            self._counter = None

    def _watch_imports(self) -> None:
        """Times the outermost imports, by replacing the function with which Python first loads a module."""
        load = getattr(_bootstrap, "_find_and_load", None)
        if load is None:
            return
        self._find_and_load = load
        thread, timeline, watch_sessions = threading.get_ident(), self.timeline, self._watch_sessions
        under_way: list[object] = []

        def find_and_load(*args: Any) -> Any:
            if under_way or threading.get_ident() != thread:
                return load(*args)
            entry = timeline.begin("import")
            under_way.append(entry)
            try:
                return load(*args)
            finally:
                under_way.clear()
                timeline.finish(entry)
                watch_sessions()

        # Python removes the frames of its import from the traceback of a failed import, by this file name.
        find_and_load.__code__ = find_and_load.__code__.replace(co_filename=load.__code__.co_filename)
        _bootstrap._find_and_load = find_and_load

    def _watch_sessions(self) -> None:
        """Detects new sessions through TensorFlow's own counter, once TensorFlow is imported."""
        module = sys.modules.get(_TF_SESSION)
        counter = getattr(module, _COUNTER, None)
        if self._counter is None and counter is not None and hasattr(counter, "get_cell"):
            self._counter = _Counter(counter, self._notice)
            setattr(module, _COUNTER, self._counter)

    def _notice(self) -> None:
        origin = current_origin()
        if len(self._sessions) < _MOST_SESSIONS and (origin.library == "tensorflow" or origin.kind == "Session"):
            self._sessions.setdefault(origin)


class _Counter:
    """TensorFlow's counter of new sessions, with a callback.

    Args:
      counter: the counter.
      notice: function without arguments, called for each new session.
    """

    def __init__(self, counter: Any, notice: Callable[[], None]) -> None:
        self.counter, self._notice = counter, notice

    def get_cell(self, *labels: str) -> Any:
        """Returns the counter's cell. TensorFlow calls this for each new session."""
        self._notice()
        return self.counter.get_cell(*labels)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.counter, name)
