"""What was recorded, put in order: rows that add up to the wall clock, and which of them to look at first."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from fastsup.core.recorded import RUNTIME, SESSION
from fastsup.core.recorder import Recorder

__all__ = ["Report", "Row", "Times", "duration", "report_of"]

FETCHES = "fetches"
# The session's own: for hooks that are left out of a run and count by it.
STEP_FETCH = "global step"
BETWEEN = "between steps"
# What hooks may cost before it is worth saying where to look.
_WORTH_A_LOOK = 0.05


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
    """

    owner: str
    phase: str
    times: Times
    share: float
    basis: str = "measured"

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
      saw_others: whether there were sessions or loops with a profiler of their own, which aren't in this one.
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
    saw_others: bool = False

    @property
    def hooks(self) -> list[tuple[str, int, list[Row]]]:
        """The hooks, the costliest first: name, nanoseconds, rows."""
        rows: dict[str, list[Row]] = defaultdict(list)
        for row in self.rows:
            if row.is_hook:
                rows[row.owner].append(row)
        totals = [(name, sum(row.times.total_ns for row in of_it), of_it) for name, of_it in rows.items()]
        return sorted(totals, key=lambda hook: -hook[1])

    @property
    def session(self) -> list[Row]:
        """The rows that are no hook's."""
        return [row for row in self.rows if not row.is_hook]

    def share(self, ns: float) -> float:
        """Part of the wall clock's time."""
        return ns / self.wall_ns if self.wall_ns else 0.0

    def advice(self) -> str:
        """Which hook to look at first, and what isn't in the profile, in a sentence or two."""
        others = " Sessions and loops with a profiler of their own aren't in this one." if self.saw_others else ""
        return self._advice() + others

    def _advice(self) -> str:
        if self.steps == 0 and self.skipped_steps:
            return f"All {self.skipped_steps} steps were left out: skip fewer of them."
        if self.steps == 0:
            return "No step of a fastsup session or loop was recorded."
        hooks = self.hooks
        of_hooks = self.share(sum(total for _, total, _ in hooks))
        beside = [(row.times.total_ns, row.phase) for row in self.session]
        beside += [(self.profiler_ns, "profiler"), (self.unaccounted_ns, "unaccounted")]
        most, phase = max(beside, key=lambda part: part[0])
        elsewhere = f" Most time: {phase}, {percent(self.share(most))}." if most > 0 else ""
        if not hooks:
            return f"No hook was called.{elsewhere}"
        if of_hooks < _WORTH_A_LOOK:
            fetching = list(dict.fromkeys(row.owner for row in self.rows if row.is_hook and row.basis == "counted"))
            if fetching:
                verb, pronoun = ("fetches", "it") if len(fetching) == 1 else ("fetch", "them")
                return (
                    f"Hooks take {percent(of_hooks)} of the time, but for computing what {' and '.join(fetching)} "
                    f"{verb} in every step: that is in the runtime's row, and a run without {pronoun} tells how much "
                    f"it is.{elsewhere}"
                )
            return f"Hooks take {percent(of_hooks)} of the time: nothing to gain there.{elsewhere}"
        name, total, rows = hooks[0]
        worst = max(rows, key=lambda row: row.times.total_ns)
        text = (
            f"Look first at {name}: {percent(self.share(total))} of the time, {duration(total / self.steps)} a step, "
            f"most of it {_PHRASES.get(worst.phase, worst.phase)}"
        )
        calls = sum(row.times.calls for row in rows if row.phase in ("after_run", "after_step"))
        if calls >= self.steps and worst.phase in ("before_run", "after_run"):
            return text + ". It is called in every step: does it need to be?"
        if worst.phase == FETCHES:
            return text + ". Does it need them in so many steps?"
        return text + "."


_PHRASES = {FETCHES: "what it fetches", "save": "saving", "listener": "its listeners", "summary": "writing summaries"}
_UNITS = ((1e3, 1.0, "ns"), (1e6, 1e3, "µs"), (1e9, 1e6, "ms"))


def duration(ns: float) -> str:
    """A duration in three digits: "1.23µs"."""
    for limit, unit, name in _UNITS:
        if ns < limit * 0.9995:
            return _three_digits(ns / unit) + name
    return _three_digits(ns / 1e9) + "s"


def _three_digits(number: float) -> str:
    if number >= 99.95 or number == 0:
        return f"{number:.0f}"
    return f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"


def percent(share: float) -> str:
    """A share as a percentage: "4.5%"."""
    return "100%" if share >= 0.9995 else f"{100 * share:.1f}%"


def _times(described: dict[str, Any]) -> Times:
    return Times(**{name: described[name] for name in Times.__dataclass_fields__})


def report_of(recorder: Recorder) -> Report:
    """The report of what a recorder has recorded so far."""
    recorded = recorder.snapshot()
    wall = recorded["wall_ns"]

    def share(ns: float) -> float:
        return ns / wall if wall else 0.0

    rows: list[Row] = []
    runtime: Row | None = None
    for cell in recorded["cells"]:
        times = _times(cell)
        row = Row(cell["owner"], cell["phase"], times, share(times.total_ns))
        if (row.owner, row.phase) == (SESSION, RUNTIME):
            runtime = row
        else:
            rows.append(row)
    if runtime is not None:
        estimates, runtime = _share_runtime(runtime, recorded["fetches"], wall)
        rows += [*estimates, runtime]
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
        saw_others=recorder.saw_others,
    )


def _share_runtime(runtime: Row, fetches: list[dict[str, Any]], wall: int) -> tuple[list[Row], Row]:
    """Takes what hooks fetch out of the runtime's row: as much of it as there is."""
    wanted = sum(fetch["total_ns"] for fetch in fetches)
    scale = min(1.0, runtime.times.total_ns / wanted) if wanted else 1.0
    rows = []
    for fetch in fetches:
        total = int(fetch["total_ns"] * scale)
        times = Times(fetch["calls"], total, total / fetch["calls"], None, None, None, None, None)
        phase = STEP_FETCH if fetch["owner"] == SESSION else FETCHES
        rows.append(Row(fetch["owner"], phase, times, total / wall if wall else 0.0, fetch["basis"]))
    rest = runtime.times.total_ns - sum(row.times.total_ns for row in rows)
    whole = runtime.times
    times = Times(
        whole.calls, rest, rest / whole.calls, whole.p50_ns, whole.p95_ns, whole.p99_ns, whole.max_ns, whole.max_step
    )
    return rows, Row(SESSION, RUNTIME, times, rest / wall if wall else 0.0)
