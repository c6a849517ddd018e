"""A whole program while it is profiled: its timeline, what it imports, and the sessions that aren't recorded."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

from fastsup.core.session_origin import SessionOrigin, current_origin
from fastsup.core.timeline import Timeline

__all__ = ["Program"]

# Python's own import, which isn't a part of what the standard library documents.
_bootstrap: Any = import_module("importlib._bootstrap")

_MOST_SESSIONS = 100
_TF_SESSION = "tensorflow.python.client.session"
# What TensorFlow counts new sessions with, in that module.
_COUNTER = "_python_session_create_counter"


class Program:
    """Watches the program from `start` to `stop`. It must be the thread that runs the program which calls them."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self._sessions: dict[SessionOrigin, None] = {}
        self._find_and_load: Callable[..., Any] | None = None
        self._counter: Any = None

    @property
    def plain_sessions(self) -> list[SessionOrigin]:
        """Who has opened sessions of TensorFlow's own, or plain ones of ours: what no profile has in it."""
        return list(self._sessions)

    def start(self) -> None:
        """Begins to watch."""
        self.timeline = Timeline()
        self.timeline.start()
        self._watch_sessions()
        self._watch_imports()

    def stop(self) -> None:
        """Ends it, and puts things back as they were."""
        self.timeline.stop()
        if self._find_and_load is not None:
            _bootstrap._find_and_load, self._find_and_load = self._find_and_load, None
        if self._counter is not None:
            setattr(sys.modules[_TF_SESSION], _COUNTER, self._counter.counter)
            self._counter = None

    def _watch_imports(self) -> None:
        """Times the imports that no other one makes: where Python looks up what loads a module that isn't there yet."""
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

        # A failed import's traceback leaves out the frames of this file's name, as it does without the profiler.
        find_and_load.__code__ = find_and_load.__code__.replace(co_filename=load.__code__.co_filename)
        _bootstrap._find_and_load = find_and_load

    def _watch_sessions(self) -> None:
        """Notices new sessions, once TensorFlow is imported, by its own counter of them."""
        module = sys.modules.get(_TF_SESSION)
        counter = getattr(module, _COUNTER, None)
        if self._counter is None and counter is not None and hasattr(counter, "get_cell"):
            self._counter = _Counter(counter, self._notice)
            setattr(module, _COUNTER, self._counter)

    def _notice(self) -> None:
        opened = current_origin()
        if len(self._sessions) < _MOST_SESSIONS and (opened.library == "tensorflow" or opened.kind == "Session"):
            self._sessions.setdefault(opened)


class _Counter:
    """TensorFlow's counter of new sessions, which tells of each.

    Args:
      counter: the counter.
      notice: function that is called.
    """

    def __init__(self, counter: Any, notice: Callable[[], None]) -> None:
        self.counter, self._notice = counter, notice

    def get_cell(self, *labels: str) -> Any:
        """The counter's cell."""
        self._notice()
        return self.counter.get_cell(*labels)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.counter, name)
