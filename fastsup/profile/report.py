"""The report of a profile: rows that add up to the wall clock, by session and by set of fetches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from fastsup.core.sessions import PlanExecutor, SessionOrigin
from fastsup.eager.function_notes import FunctionNote
from fastsup.profile.advice.steps import advice_on
from fastsup.profile.numbers import (
    CALLBACKS,
    LOOP,
    Head,
    ProfileRows,
    Row,
    SessionPart,
    Times,
    duration,
    head_of,
    names_of,
    percent,
)
from fastsup.profile.recording.phases import (
    BETWEEN,
    BY_TENSORFLOW_FUNCTION,
    FETCHES,
    IN_A_THREAD,
    INPUT_WAIT,
    PASS_FUNCTIONS,
    STEP_FETCH,
)
from fastsup.profile.recording.recorder import Recorder
from fastsup.profile.recording.statistics import OTHER_FETCHES, RUNTIME, SESSION

__all__ = ["Report", "Row", "Times", "duration", "percent", "report_of"]

# If a wait exceeds this share of a row, the row's quantiles without the wait aren't known.
_SMALL_WAIT = 0.05


@dataclass(frozen=True)
class Report(ProfileRows):
    __doc__ = ProfileRows.__doc__

    def advice(self) -> str:
        """Returns sentences about the largest cost that the program can change, and about what the report excludes."""
        return advice_on(self)


def _times(described: dict[str, Any]) -> Times:
    return Times(**{name: described[name] for name in Times.__dataclass_fields__})


def report_of(
    recorder: Recorder,
    head: Head | None = None,
    timeline: Iterable[tuple[str, int, int]] = (),
    unrecorded_sessions: Iterable[SessionOrigin] = (),
    functions: Iterable[FunctionNote] = (),
    call_cost: Callable[[], float] = float,
) -> Report:
    """Creates the report of a recorder's data so far.

    Args:
      recorder: the recorder.
      head: the head of the report. If None, created for this process and the current time.
      timeline: the phases of the program: (name, nanoseconds, number of times).
      unrecorded_sessions: the origins of sessions that no profile contains.
      functions: the functions of `fastsup.function` that the program has called.
      call_cost: function that measures `Report.call_ns`, called if TensorFlow calls the functions of Keras models.

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
        owner, thread = span["owner"].removesuffix(IN_A_THREAD), CALLBACKS if span["aside"] else LOOP
        about = (share(times.total_ns), "measured", name, span["detail"], thread)
        rows.append(Row(owner, span["phase"], times, *about))
    for fetch in recorded["fetches"]:
        times = _take_out(fetch, runtime)
        phase = STEP_FETCH if fetch["owner"] == SESSION else FETCHES
        rows.append(Row(fetch["owner"], phase, times, share(times.total_ns), fetch["basis"], names[fetch["session"]]))
    for (session, detail), times in runtime.items():
        rows.append(Row(SESSION, RUNTIME, times, share(times.total_ns), "measured", names[session], detail))
    for session, name in zip(recorded["sessions"], names, strict=True):
        rows += _waits_for_input(rows, name, session["input_wait"], share)
    between = _times(recorded["between_steps"])
    if between.calls:
        rows.append(Row(SESSION, BETWEEN, between, share(between.total_ns)))
    rows.sort(key=lambda row: (not row.is_hook, -row.times.total_ns))
    sessions = _sessions(recorded["sessions"], names, rows)
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
        sessions=sessions,
        head=head or head_of(),
        timeline=tuple(timeline),
        unrecorded_sessions=tuple(unrecorded_sessions),
        functions=tuple(replace(note) for note in functions),
        call_ns=call_cost() if any(BY_TENSORFLOW_FUNCTION in part.asked_executors for part in sessions) else 0.0,
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


def _waits_for_input(
    rows: list[Row], session: str, wait: tuple[int, int, int], share: Callable[[float], float]
) -> Iterable[Row]:
    """Moves a wait for input that was measured elsewhere from the row that contains it to a new row."""
    calls, total, longest = wait
    place = next((i for i, row in enumerate(rows) if row.session == session and row.phase in PASS_FUNCTIONS), None)
    if not calls or place is None:
        return
    around = rows[place].times
    taken = min(total, around.total_ns)
    rest = around.total_ns - taken
    without = replace(around, total_ns=rest, mean_ns=rest / around.calls)
    if taken > _SMALL_WAIT * around.total_ns:
        # For single calls, only their waits are known.
        without = replace(without, p50_ns=None, p95_ns=None, p99_ns=None, max_ns=None, max_step=None)
    rows[place] = replace(rows[place], times=without, share=share(rest))
    times = Times(calls, taken, taken / calls, None, None, None, longest or None, None)
    yield Row(SESSION, INPUT_WAIT, times, share(taken), "measured", session)


def _sessions(recorded: list[dict[str, Any]], names: list[str], rows: list[Row]) -> tuple[SessionPart, ...]:
    """Returns the sessions with rows, in the order of `_outer_first`."""
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
                runs=sum(row.times.calls for row in of_it if row.is_step),
                total_ns=sum(row.times.total_ns for row in of_it),
                within=None if within is None else (names[within[0]], *within[1:]),
                asked_executors=tuple(session["asked_executors"]),
                executors=tuple(PlanExecutor(**plan) for plan in session["executors"]),
                tensorflow_hooks=tuple(session["tensorflow_hooks"]),
                operations_added=session["operations_added"],
                is_pass=session["library"] == "keras",
            )
        )
    return tuple(_outer_first(parts))


def _outer_first(parts: list[SessionPart]) -> list[SessionPart]:
    """Sorts sessions by time, the longest first. Each is followed by the sessions inside it."""
    inside: dict[str | None, list[SessionPart]] = defaultdict(list)
    names = {part.name for part in parts}
    for part in parts:
        around = None if part.within is None else part.within[0]
        inside[around if around in names and around != part.name else None].append(part)

    def with_inner(part: SessionPart) -> tuple[int, list[SessionPart]]:
        total, inner = branches(part.name)
        return part.total_ns + total, [part, *inner]

    def branches(name: str | None) -> tuple[int, list[SessionPart]]:
        # Remove it, so that two sessions inside each other don't cause an infinite loop.
        found = sorted(map(with_inner, inside.pop(name, [])), key=lambda branch: -branch[0])
        return sum(total for total, _ in found), [part for _, branch in found for part in branch]

    ordered = branches(None)[1]
    return ordered + [part for rest in inside.values() for part in rest]
