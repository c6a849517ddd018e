"""The numbers of a report (its head, sessions and rows), and the conversion of numbers to text."""

from __future__ import annotations

import os
import platform
import re
import shlex
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from fastsup.common.versions import tensorflow_version, version_of
from fastsup.core.sessions import PlanExecutor, SessionOrigin
from fastsup.eager.function_notes import FunctionNote
from fastsup.profile.recording.phases import FUNCTION_ROLE, IN_A_THREAD, KERAS_STEPS
from fastsup.profile.recording.statistics import RUNTIME, SESSION

__all__ = [
    "CALLBACKS",
    "LOOP",
    "Head",
    "ProfileRows",
    "Row",
    "SessionPart",
    "Times",
    "cores",
    "count",
    "duration",
    "head_of",
    "hooks_among",
    "name_of",
    "names_of",
    "percent",
]

_UNITS = ((1e3, 1.0, "ns"), (1e6, 1e3, "µs"), (1e9, 1e6, "ms"))


def duration(ns: float) -> str:
    """Formats a duration, given in nanoseconds, with three digits: "1.23µs"."""
    for limit, unit, name in _UNITS:
        if ns < limit * 0.9995:
            return _three_digits(ns / unit) + name
    return _three_digits(ns / 1e9) + "s"


def _three_digits(number: float) -> str:
    if number >= 99.95 or number == 0:
        return f"{number:.0f}"
    return f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"


def percent(share: float) -> str:
    """Formats a share from 0 to 1 as a percentage: "4.5%"."""
    return "100%" if share >= 0.9995 else f"{100 * share:.1f}%"


def count(number: int, digits: int = 5) -> str:
    """Formats an integer in a few characters: "12345", "1.23M"."""
    if number < 10**digits:
        return str(number)
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= unit * 0.9995:
            scaled = number / unit
            return (f"{scaled:.0f}" if scaled >= 99.95 else f"{scaled:.3g}") + name
    return str(number)


@dataclass(frozen=True)
class Head:
    """The head of a report.

    Args:
      script: the script, as it was called.
      arguments: its arguments.
      date: date and time of the profile, with the zone: "2026-11-23 10:15:00 +0000".
      versions: versions by name of fastsup, TensorFlow, Python and NumPy, if installed.
      machine: processor, number of cores and system.
    """

    script: str = ""
    arguments: tuple[str, ...] = ()
    date: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    machine: str = ""

    def lines(self) -> list[str]:
        """Returns the head as lines of text, without empty ones."""
        command = " ".join([self.script, *map(shlex.quote, self.arguments)]) if self.script else ""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return [line for line in (", ".join(filter(None, (command, self.date))), versions, self.machine) if line]


def head_of() -> Head:
    """Returns the head for a profile of this process, with the current time."""
    import fastsup

    versions = {"fastsup": fastsup.__version__}
    tensorflow = tensorflow_version()
    if tensorflow is not None:
        versions["TensorFlow"] = tensorflow
    versions["Python"] = platform.python_version()
    numpy = version_of("numpy")
    if numpy is not None:
        versions["NumPy"] = numpy
    parts = (_processor(), f"{cores()} core{'s' if cores() > 1 else ''}", platform.platform())
    machine = ", ".join(filter(None, parts))
    script = sys.argv[0] if sys.argv else ""
    return Head(script, tuple(sys.argv[1:]), time.strftime("%Y-%m-%d %H:%M:%S %z"), versions, machine)


def cores() -> int:
    """Returns the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        return ""
    return names[0] if names else ""


@dataclass(frozen=True)
class SessionPart:
    """A session or loop, or several with one origin.

    Args:
      name: its name in the profile.
      kind: name of the call that opens it.
      role: "train", "evaluate", "predict", "run" if its purpose isn't known, or "call" for a function.
      place: file name and line of that call.
      sessions: number of sessions.
      runs: number of runs, of batches for a pass such as Keras's `fit`, or of calls for a function.
      total_ns: sum of its rows, in nanoseconds.
      within: the callback in which the sessions ran, as (session, hook, phase, detail), or None outside a callback.
      asked_executors: the executor modes of the sessions: the requested ones, or `auto`'s final choices.
      executors: the executors of its combinations of fetches and feeds.
      tensorflow_hooks: class names of its hooks that are TensorFlow's own.
      operations_added: number of operations added to the graph while the session was open.
      is_pass: True for Keras: a call that runs all steps itself (`fit`, `evaluate` or `predict`), or calls for one
        batch, such as `train_on_batch`.
    """

    name: str
    kind: str
    role: str
    place: str
    sessions: int
    runs: int
    total_ns: int
    within: tuple[str, str, str, str] | None = None
    asked_executors: tuple[str, ...] = ()
    executors: tuple[PlanExecutor, ...] = ()
    tensorflow_hooks: tuple[str, ...] = ()
    operations_added: int = 0
    is_pass: bool = False

    @property
    def is_function(self) -> bool:
        """True for a function. Each call of it is a step."""
        return self.role == FUNCTION_ROLE

    def executor_of(self, detail: str) -> str:
        """Returns the executor of fetches, such as "inline", "inline or thread_pool" or "inline, on trial", or "".

        Args:
          detail: the fetches, as in the runtime's row.
        """
        wanted = set(_names_in(detail))
        plans = [plan for plan in self.executors if plan.fetches == (detail,)]
        plans = plans or [
            plan for plan in self.executors if wanted <= {name.removesuffix(":0") for name in plan.fetches}
        ]
        if not wanted or not plans:
            known = self.asked_executors
            return known[0] if len(known) == 1 and known[0] != "auto" else ""
        modes = sorted({plan.executor for plan in plans})
        return " or ".join(modes) + (", on trial" if any(plan.on_trial for plan in plans) else "")


def _names_in(detail: str) -> list[str]:
    """Returns the names of the elements in a description of fetches."""
    without_keys = re.sub(r"[^,\[\](){}]*: ", "", re.sub(r"… \d+ more", "", detail))
    return [name.strip() for name in re.split(r"[,\[\](){}]", without_keys) if name.strip()]


def names_of(recorded: list[dict[str, Any]]) -> list[str]:
    """Returns a different name for each session, in the order in which they were recorded."""
    names: list[str] = []
    for session in recorded:
        kind, role, place = session["kind"], session["role"], session["place"]
        said = "" if role in ("run", FUNCTION_ROLE) or not kind or kind.rpartition(".")[2] == role else f" ({role})"
        name = f"{kind}{said}" + (f", {place}" if place else "")
        taken, number = name, 1
        while name and taken in names:
            number += 1
            taken = f"{name} #{number}"
        names.append(taken)
    return names


# The values of a row's `thread`.
LOOP, CALLBACKS = "loop", "callbacks"


def name_of(owner: str, thread: str) -> str:
    """Returns an owner's name in the table, which distinguishes work in a Keras thread."""
    return owner + IN_A_THREAD if thread == CALLBACKS else owner


@dataclass(frozen=True)
class Times:
    """Durations, in nanoseconds.

    Args:
      calls: number of durations.
      total_ns: their sum.
      mean_ns: their mean.
      p50_ns: their median, within 1%. This and the following are None for an estimate.
      p95_ns: the 95th percentile, within 1%.
      p99_ns: the 99th percentile, within 1%.
      max_ns: the longest duration.
      max_step: the step of the longest duration.
    """

    calls: int
    total_ns: int
    mean_ns: float
    p50_ns: float | None
    p95_ns: float | None
    p99_ns: float | None
    max_ns: int | None
    max_step: int | None


@dataclass(frozen=True)
class Row:
    """The cost of one phase of a hook or session, without the phases nested in it.

    Args:
      owner: name of the hook, or "session".
      phase: name of the phase.
      times: the durations.
      share: share of the wall clock time, from 0 to 1.
      basis: "measured"; "compared" for an estimate from runs with and without the phase; "counted" for an estimate from
        only the number of values.
      session: name of the session, or "" for a row without one.
      detail: the fetches of the runtime, the arguments of a function, the reason of a trace, the class of a listener,
        or "".
      thread: "loop" for the threads that run the steps; "callbacks" for threads in which Keras runs callbacks while the
        loop continues.
    """

    owner: str
    phase: str
    times: Times
    share: float
    basis: str = "measured"
    session: str = ""
    detail: str = ""
    thread: str = LOOP

    @property
    def name(self) -> str:
        """The owner's name in the table."""
        return name_of(self.owner, self.thread)

    @property
    def is_hook(self) -> bool:
        """True for a row of a hook."""
        return self.owner != SESSION

    @property
    def is_step(self) -> bool:
        """True for a row of the steps themselves: the runtime, or Keras's function for a batch."""
        return self.phase in (RUNTIME, *KERAS_STEPS)


@dataclass(frozen=True)
class ProfileRows:
    """The numbers of a report.

    Args:
      steps: number of recorded steps.
      skipped_steps: number of skipped steps before them.
      threads: number of threads that ran them. The times of all threads are added.
      wall_ns: nanoseconds in the steps and between them.
      profiler_ns: calibrated cost of recording.
      unaccounted_ns: nanoseconds in no row: the session layer itself.
      rows: the rows, hooks first, most expensive first.
      step_time: durations of the steps.
      step_buckets: histogram of the steps: (from, to, count), in nanoseconds.
      other_profilers_used: Whether sessions or loops had their own profiler. They aren't in this report.
      sessions: the sessions and loops, most expensive first.
      head: the script, the date, the versions and the machine.
      timeline: the phases of the whole program: (name, nanoseconds, number of times). Empty outside the command.
      unrecorded_sessions: the origins of sessions that no profile contains: TensorFlow's own, and plain ones.
      functions: the functions of `fastsup.function`.
      call_ns: nanoseconds that `fastsup.function` saves per TensorFlow call to a function, or 0 if not needed.
    """

    steps: int
    skipped_steps: int
    threads: int
    wall_ns: int
    profiler_ns: int
    unaccounted_ns: int
    rows: tuple[Row, ...]
    step_time: Times
    step_buckets: tuple[tuple[int, int, int], ...]
    other_profilers_used: bool = False
    sessions: tuple[SessionPart, ...] = ()
    head: Head = field(default_factory=Head)
    timeline: tuple[tuple[str, int, int], ...] = ()
    unrecorded_sessions: tuple[SessionOrigin, ...] = ()
    functions: tuple[FunctionNote, ...] = ()
    call_ns: float = 0.0

    @property
    def hooks(self) -> list[tuple[str, int, list[Row]]]:
        """The hooks of all sessions as (name, nanoseconds, rows), most expensive first."""
        return hooks_among(self.rows)

    @property
    def session(self) -> list[Row]:
        """The rows without a hook."""
        return [row for row in self.rows if not row.is_hook]

    def rows_of(self, session: str) -> list[Row]:
        """Returns the rows of a session.

        Args:
          session: its name, or "" for rows without a session.
        """
        return [row for row in self.rows if row.session == session]

    def opened_by(self, session: str, owner: str) -> list[SessionPart]:
        """Returns the sessions and passes that a hook of a session opens.

        Args:
          session: name of the hook's session.
          owner: name of the hook.
        """
        return [part for part in self.sessions if part.within is not None and part.within[:2] == (session, owner)]

    def executor_of(self, row: Row) -> str:
        """Returns the executor of a runtime row or a pass's function. Returns "" if it isn't known, and for other rows.

        Args:
          row: one of the rows.
        """
        if not row.is_step or not row.session:
            return ""
        detail = row.detail if row.phase == RUNTIME else row.phase
        return next(part.executor_of(detail) for part in self.sessions if part.name == row.session)

    def shown(self, row: Row) -> str:
        """Returns a row's name in the table: its phase, detail and executor.

        Args:
          row: one of the rows.
        """
        executor = self.executor_of(row)
        return f"{row.phase} {row.detail}".rstrip() + (f": {executor}" if executor else "")

    def share(self, ns: float) -> float:
        """Returns a time as a share of the wall clock time, from 0 to 1.

        Args:
          ns: the time in nanoseconds.
        """
        return ns / self.wall_ns if self.wall_ns else 0.0


def hooks_among(rows: Iterable[Row]) -> list[tuple[str, int, list[Row]]]:
    """Groups rows by hook and session. Returns (name, nanoseconds, rows) for each hook, most expensive first."""
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row.is_hook:
            found[row.session, row.name].append(row)
    totals = [(owner, sum(row.times.total_ns for row in of_it), of_it) for (_, owner), of_it in found.items()]
    return sorted(totals, key=lambda hook: -hook[1])
