"""What was recorded, put in order: rows that add up to the wall clock, by session and by set of fetches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from fastsup.core.plan_executor import PlanExecutor
from fastsup.core.recorder import Recorder
from fastsup.core.recording import RUNTIME, SESSION
from fastsup.core.session_origin import SessionOrigin
from fastsup.core.span_registry import OTHER_FETCHES
from fastsup.profile.advice import advice_on
from fastsup.profile.head import Head, head_of
from fastsup.profile.phases import BETWEEN, FETCHES, STEP_FETCH
from fastsup.profile.quantities import duration, percent
from fastsup.profile.session_part import SessionPart, names_of

__all__ = ["Report", "Row", "Times", "duration", "percent", "report_of"]


@dataclass(frozen=True)
class Times:
    """Durations of what was done several times, in nanoseconds; the quantiles are None for an estimate."""

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
    """What one phase of one hook, or of the session, took by itself.

    Args:
      owner: the hook's name, or "session".
      phase: what was done.
      times: how often and how long.
      share: part of the wall clock's time, 0 to 1.
      basis: "measured"; "compared" for an estimate from runs with and without it; "counted" for one from the number of
        values alone.
      session: the name of the session; "" for what belongs to none.
      detail: of the runtime, the fetches; of a listener, its class; else "".
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
        """Whether this is a hook's."""
        return self.owner != SESSION


@dataclass(frozen=True)
class Report:
    """A profile.

    Args:
      steps: how many steps were recorded.
      skipped_steps: how many were left out before them.
      threads: how many threads made them; their times are added up.
      wall_ns: what passed in the steps and between them.
      profiler_ns: what recording has cost, by calibration.
      unaccounted_ns: what no row says: the session layer itself.
      rows: the rows, hooks first, the costliest in front.
      step_time: durations of the steps.
      step_buckets: their histogram: (from, to, count), in nanoseconds.
      other_profilers_used: whether there were sessions or loops with a profiler of their own, which aren't in this one.
      sessions: the sessions and loops, those that take the most time first.
      head: what was run, when, with which versions and on which machine.
      timeline: the phases of the whole program: (name, nanoseconds, how often). Empty outside the command.
      unrecorded_sessions: who has opened sessions that no profile has in it: TensorFlow's own, and plain ones.
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

    @property
    def hooks(self) -> list[tuple[str, int, list[Row]]]:
        """The hooks of all sessions, the costliest first: name, nanoseconds, rows."""
        return hooks_among(self.rows)

    @property
    def session(self) -> list[Row]:
        """The rows that are no hook's."""
        return [row for row in self.rows if not row.is_hook]

    def rows_of(self, session: str) -> list[Row]:
        """The rows of one session.

        Args:
          session: its name; "" for the rows that belong to none.
        """
        return [row for row in self.rows if row.session == session]

    def share(self, ns: float) -> float:
        """Part of the wall clock's time."""
        return ns / self.wall_ns if self.wall_ns else 0.0

    def advice(self) -> str:
        """What to look at first of all that the program can change, and what isn't in the profile: a few sentences."""
        return advice_on(self)


def hooks_among(rows: Iterable[Row]) -> list[tuple[str, int, list[Row]]]:
    """The hooks that rows belong to, the costliest first: name, nanoseconds, rows. Hooks of two sessions are two."""
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
) -> Report:
    """The report of what a recorder has recorded so far.

    Args:
      recorder: the recorder.
      head: what was run; None for this process, now.
      timeline: the phases of the program.
      unrecorded_sessions: who has opened sessions of TensorFlow's own.
    """
    recorded = recorder.snapshot()
    wall = recorded["wall_ns"]
    names = names_of(recorded["sessions"])

    def share(ns: float) -> float:
        return ns / wall if wall else 0.0

    rows: list[Row] = []
    runtime: dict[tuple[int, str], Times] = {}
    for cell in recorded["spans"]:
        times = _times(cell)
        if (cell["owner"], cell["phase"]) == (SESSION, RUNTIME):
            runtime[cell["session"], cell["detail"]] = times
            continue
        name = names[cell["session"]]
        rows.append(Row(cell["owner"], cell["phase"], times, share(times.total_ns), "measured", name, cell["detail"]))
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
    )


def _take_out(fetch: dict[str, Any], runtime: dict[tuple[int, str], Times]) -> Times:
    """Takes what a hook fetches out of the runtime's rows of its session: as much of it as there is."""
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
