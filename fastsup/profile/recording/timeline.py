"""The phases of a whole program, in nanoseconds.

A timeline belongs to one thread, the one that runs the program. At any moment that thread is in one phase, so the
phases add up to the time that passed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from fastsup.core import timeline

__all__ = ["Timeline"]

_ORDER = ("import", "build", "open", "train", "run", "save", "listeners", "evaluate", "predict", "end", "program")


class _Entry:
    """A phase under way."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name: str = name


class Timeline:
    """The phases of a program, from the moment this is made.

    The time outside of all phases is "build" if a session is opened after it, and else "end".

    Args:
      now: a clock: function that returns nanoseconds.
    """

    def __init__(self, now: Callable[[], int] = time.perf_counter_ns) -> None:
        self._now = now
        self._thread = threading.get_ident()
        self._open: list[_Entry] = []
        self._totals: dict[str, list[int]] = {}
        self._outside = 0
        self._last = now()
        self._stopped = False

    def start(self) -> None:
        """Makes this the program's timeline."""
        timeline.set_program_timeline(self)

    def stop(self) -> None:
        """Ends the timeline, and the phases under way: `phases` returns the same from now on."""
        self._charge()
        self._open.clear()
        self._stopped = True
        if timeline.program_timeline() is self:
            timeline.set_program_timeline(None)

    def begin(self, name: str) -> _Entry | None:
        """Begins a phase, within those under way. Arguments and result as for the function `begin`."""
        if threading.get_ident() != self._thread:
            return None
        self._charge()
        if not self._open and name != "import":
            self._add("build", self._outside)
            self._outside = 0
        entry = _Entry(name)
        self._open.append(entry)
        self._totals.setdefault(name, [0, 0])[1] += 1
        return entry

    def finish(self, entry: _Entry | None) -> None:
        """Ends a phase. Phases may end in any order; a second call does nothing.

        Args:
          entry: the result of `begin`.
        """
        if entry is not None and entry in self._open and threading.get_ident() == self._thread:
            self._charge()
            self._open.remove(entry)

    def phases(self) -> list[tuple[str, int, int]]:
        """Returns the phases so far, in the order of a program: (name, nanoseconds, number of times it was begun)."""
        if not self._stopped and (self._open or threading.get_ident() == self._thread):
            self._charge()
        worked = any(name not in ("import", "build") for name in self._totals)
        phases = {name: (ns, count) for name, (ns, count) in self._totals.items()}
        last = "end" if worked else "program"
        ns, count = phases.get(last, (0, 0))
        phases[last] = (ns + self._outside, count)
        ordered = sorted(phases, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))
        return [(name, *phases[name]) for name in ordered if any(phases[name])]

    def _charge(self) -> None:
        now = self._now()
        if self._open:
            self._add(self._open[-1].name, now - self._last)
        else:
            self._outside += now - self._last
        self._last = now

    def _add(self, name: str, ns: int) -> None:
        self._totals.setdefault(name, [0, 0])[0] += ns
