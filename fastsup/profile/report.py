"""The report of a profile: rows that add up to the wall clock, by session and by set of fetches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from fastsup.core.plan_executor import PlanExecutor
from fastsup.core.session_origin import SessionOrigin
from fastsup.eager.function_notes import FunctionNote
from fastsup.profile.advice import advice_on
from fastsup.profile.head import Head, head_of
from fastsup.profile.phases import BETWEEN, FETCHES, STEP_FETCH
from fastsup.profile.quantities import duration, percent
from fastsup.profile.recording.recorder import Recorder
from fastsup.profile.recording.span_registry import OTHER_FETCHES
from fastsup.profile.recording.statistics import RUNTIME, SESSION
from fastsup.profile.session_part import SessionPart, names_of

__all__ = ["Report", "Row", "Times", "duration", "percent", "report_of"]


@dataclass(frozen=True)
class Times:
    """Durations, in nanoseconds.

    Args:
      calls: how many there are.
      total_ns: their sum.
      mean_ns: their mean.
      p50_ns: their median, within 1%; this and the following are None for an estimate.
      p95_ns: the 95th percentile, within 1%.
      p99_ns: the 99th percentile, within 1%.
      max_ns: the longest.
      max_step: the step of the longest.
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
    """The cost of one phase of a hook or of the session, without the phases nested in it.

    Args:
      owner: name of the hook, or "session".
      phase: name of the phase.
      times: the durations.
      share: part of the wall clock's time, 0 to 1.
      basis: "measured"; "compared" for an estimate from runs with and without it; "counted" for an estimate from the
        number of values alone.
      session: name of the session; "" for a row that belongs to none.
      detail: the fetches of the runtime, or the class of a listener; else "".
    """

    owner: str
    phase: str
    times: Times
    share: float
    basis: str = "measured"
    session: str = ""
    detail: str = ""

    @property
    def is_hook(self) -> bool:
        """True for a row of a hook."""
        return self.owner != SESSION


@dataclass(frozen=True)
class Report:
    """A profile.

    Args:
      steps: number of steps recorded.
      skipped_steps: number of steps left out before them.
      threads: number of threads that made them. The times of all threads are added.
      wall_ns: nanoseconds in the steps and between them.
      profiler_ns: the cost of recording, by calibration.
      unaccounted_ns: nanoseconds in no row: the session layer itself.
      rows: the rows, hooks first, the costliest in front.
      step_time: durations of the steps.
      step_buckets: histogram of the steps: (from, to, count), in nanoseconds.
      other_profilers_used: whether sessions or loops had a profiler of their own. They aren't in this report.
      sessions: the sessions and loops, those that take the most time first.
      head: the script, the date, the versions and the machine.
      timeline: the phases of the whole program: (name, nanoseconds, number of times). Empty outside the command.
      unrecorded_sessions: the origins of sessions that no profile contains: TensorFlow's own, and plain ones.
      functions: the functions of `fastsup.function`. Their calls are steps only in a loop or a monitored function.
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

    @property
    def hooks(self) -> list[tuple[str, int, list[Row]]]:
        """The hooks of all sessions, the costliest first: name, nanoseconds, rows."""
        return hooks_among(self.rows)

    @property
    def session(self) -> list[Row]:
        """The rows that belong to no hook."""
        return [row for row in self.rows if not row.is_hook]

    def rows_of(self, session: str) -> list[Row]:
        """Returns the rows of a session.

        Args:
          session: its name; "" for the rows that belong to none.
        """
        return [row for row in self.rows if row.session == session]

    def share(self, ns: float) -> float:
        """Returns a time as a part of the wall clock's, 0 to 1.

        Args:
          ns: the time in nanoseconds.
        """
        return ns / self.wall_ns if self.wall_ns else 0.0

    def advice(self) -> str:
        """Returns sentences: the largest cost that the program can change, and what the report doesn't contain."""
        return advice_on(self)


def hooks_among(rows: Iterable[Row]) -> list[tuple[str, int, list[Row]]]:
    """Groups rows by hook, and by session. Returns (name, nanoseconds, rows) for each hook, the costliest first."""
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row.is_hook:
            found[row.session, row.owner].append(row)
    totals = [(owner, sum(row.times.total_ns for row in of_it), of_it) for (_, owner), of_it in found.items()]
    return sorted(totals, key=lambda hook: -hook[1])


def _times(described: dict[str, Any]) -> Times:
    return Times(**{name: described[name] for name in Times.__dataclass_fields__})


def report_of(
    recorder: Recorder,
    head: Head | None = None,
    timeline: Iterable[tuple[str, int, int]] = (),
    unrecorded_sessions: Iterable[SessionOrigin] = (),
    functions: Iterable[FunctionNote] = (),
) -> Report:
    """Makes the report of what a recorder has recorded so far.

    Args:
      recorder: the recorder.
      head: the head of the report; None for that of this process, now.
      timeline: the phases of the program: (name, nanoseconds, number of times).
      unrecorded_sessions: the origins of sessions that no profile contains.
      functions: the functions of `fastsup.function` that the program has called.

    Returns:
      The report.
    """
    recorded = recorder.snapshot()
    wall = recorded["wall_ns"]
    names = names_of(recorded["sessions"])

    def share(ns: float) -> float:
        return ns / wall if wall else 0.0

    rows: list[Row] = []
    runtime: dict[tuple[int, str], Times] = {}
    for span in recorded["spans"]:
        times = _times(span)
        if (span["owner"], span["phase"]) == (SESSION, RUNTIME):
            runtime[span["session"], span["detail"]] = times
            continue
        name = names[span["session"]]
        rows.append(Row(span["owner"], span["phase"], times, share(times.total_ns), "measured", name, span["detail"]))
    for fetch in recorded["fetches"]:
        times = _take_out(fetch, runtime)
        phase = STEP_FETCH if fetch["owner"] == SESSION else FETCHES
        rows.append(Row(fetch["owner"], phase, times, share(times.total_ns), fetch["basis"], names[fetch["session"]]))
    for (session, detail), times in runtime.items():
        rows.append(Row(SESSION, RUNTIME, times, share(times.total_ns), "measured", names[session], detail))
    between = _times(recorded["between_steps"])
    if between.calls:
        rows.append(Row(SESSION, BETWEEN, between, share(between.total_ns)))
    rows.sort(key=lambda row: (not row.is_hook, -row.times.total_ns))
    return Report(
        steps=recorded["steps"],
        skipped_steps=recorded["skipped_steps"],
        threads=recorded["threads"],
        wall_ns=wall,
        profiler_ns=recorded["profiler_ns"],
        unaccounted_ns=recorded["unaccounted_ns"],
        rows=tuple(rows),
        step_time=_times(recorded["step_time"]),
        step_buckets=tuple(recorder.step_buckets()),
        other_profilers_used=recorder.other_profilers_used,
        sessions=_sessions(recorded["sessions"], names, rows),
        head=head or head_of(),
        timeline=tuple(timeline),
        unrecorded_sessions=tuple(unrecorded_sessions),
        functions=tuple(replace(note) for note in functions),
    )


def _take_out(fetch: dict[str, Any], runtime: dict[tuple[int, str], Times]) -> Times:
    """Moves the estimate for a hook's fetches out of the runtime's rows, as far as these are large enough."""
    taken = 0
    for detail, wanted in fetch["of"].items():
        key = (fetch["session"], detail)
        if key not in runtime:
            key = (fetch["session"], OTHER_FETCHES)
        whole = runtime.get(key)
        if whole is None:
            continue
        part = min(wanted, whole.total_ns)
        taken += part
        rest = whole.total_ns - part
        runtime[key] = replace(whole, total_ns=rest, mean_ns=rest / whole.calls)
    return Times(fetch["calls"], taken, taken / fetch["calls"], None, None, None, None, None)


def _sessions(recorded: list[dict[str, Any]], names: list[str], rows: list[Row]) -> tuple[SessionPart, ...]:
    """The sessions that have rows, those that take the most time first."""
    parts = []
    for session, name in zip(recorded, names, strict=True):
        of_it = [row for row in rows if row.session == name]
        if not name or not of_it:
            continue
        within = session["within"]
        parts.append(
            SessionPart(
                name=name,
                kind=session["kind"],
                role=session["role"],
                place=session["place"],
                sessions=session["sessions"],
                runs=sum(row.times.calls for row in of_it if row.phase == RUNTIME),
                total_ns=sum(row.times.total_ns for row in of_it),
                within=None if within is None else (names[within[0]], *within[1:]),
                asked_executors=tuple(session["asked_executors"]),
                executors=tuple(PlanExecutor(**plan) for plan in session["executors"]),
                tensorflow_hooks=tuple(session["tensorflow_hooks"]),
                operations_added=session["operations_added"],
            )
        )
    return tuple(sorted(parts, key=lambda part: -part.total_ns))
