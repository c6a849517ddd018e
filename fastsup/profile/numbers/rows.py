"""The numbers of a report: the rows, by session and by set of fetches, and what they are a part of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from fastsup.core.sessions import SessionOrigin
from fastsup.eager.function_notes import FunctionNote
from fastsup.profile.numbers.head import Head
from fastsup.profile.numbers.session_part import SessionPart
from fastsup.profile.recording.phases import IN_A_THREAD, KERAS_STEPS
from fastsup.profile.recording.statistics import RUNTIME, SESSION

__all__ = ["CALLBACKS", "LOOP", "ProfileRows", "Row", "Times", "hooks_among", "name_of"]

# The threads of rows.
LOOP, CALLBACKS = "loop", "callbacks"


def name_of(owner: str, thread: str) -> str:
    """Returns an owner as the table names it: what it does in a thread of Keras's is told apart.

    Args:
      owner: name of the hook, or "session".
      thread: as in a `Row`.
    """
    return owner + IN_A_THREAD if thread == CALLBACKS else owner


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
      detail: the fetches of the runtime, the arguments of a function, the reason of a trace, or the class of a
        listener; else "".
      thread: "loop" for the threads that make the steps; "callbacks" for those to which Keras has given callbacks,
        whose time passes while the loop goes on.
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
        """The owner, as the table names it."""
        return name_of(self.owner, self.thread)

    @property
    def is_hook(self) -> bool:
        """True for a row of a hook."""
        return self.owner != SESSION

    @property
    def is_step(self) -> bool:
        """True for a row of the steps themselves: of the runtime, or of what Keras calls for a batch."""
        return self.phase in (RUNTIME, *KERAS_STEPS)


@dataclass(frozen=True)
class ProfileRows:
    """The numbers of a report.

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
      other_profilers_used: whether sessions or loops had their own profiler. They aren't in this report.
      sessions: the sessions and loops, those that take the most time first.
      head: the script, the date, the versions and the machine.
      timeline: the phases of the whole program: (name, nanoseconds, number of times). Empty outside the command.
      unrecorded_sessions: the origins of sessions that no profile contains: TensorFlow's own, and plain ones.
      functions: the functions of `fastsup.function`.
      call_ns: nanoseconds of TensorFlow's call of a function that `fastsup.function` spares; 0 if nothing asks for it.
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

    def opened_by(self, session: str, owner: str) -> list[SessionPart]:
        """Returns the sessions and passes that a hook of a session opens.

        Args:
          session: name of the hook's session.
          owner: name of the hook.
        """
        return [part for part in self.sessions if part.within is not None and part.within[:2] == (session, owner)]

    def executor_of(self, row: Row) -> str:
        """Returns what runs a row of the runtime, or of a pass's function; "" if it isn't known, and for any other row.

        Args:
          row: one of the rows.
        """
        if not row.is_step or not row.session:
            return ""
        detail = row.detail if row.phase == RUNTIME else row.phase
        return next(part.executor_of(detail) for part in self.sessions if part.name == row.session)

    def shown(self, row: Row) -> str:
        """Returns a row's name in the table: its phase and detail, and what runs it.

        Args:
          row: one of the rows.
        """
        executor = self.executor_of(row)
        return f"{row.phase} {row.detail}".rstrip() + (f": {executor}" if executor else "")

    def share(self, ns: float) -> float:
        """Returns a time as a part of the wall clock's, 0 to 1.

        Args:
          ns: the time in nanoseconds.
        """
        return ns / self.wall_ns if self.wall_ns else 0.0


def hooks_among(rows: Iterable[Row]) -> list[tuple[str, int, list[Row]]]:
    """Groups rows by hook, and by session. Returns (name, nanoseconds, rows) for each hook, the costliest first."""
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row.is_hook:
            found[row.session, row.name].append(row)
    totals = [(owner, sum(row.times.total_ns for row in of_it), of_it) for (_, owner), of_it in found.items()]
    return sorted(totals, key=lambda hook: -hook[1])
