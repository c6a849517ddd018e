"""Keeps the members of a job running, as a cluster's manager does, and has them fail."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from chaos_notes import Notes
from harness import Cluster

# Seconds: what everything takes to start, and what training may stand still after a loss is over.
START_SECS, STILL_SECS = 180.0, 120.0
_LOOK_SECS = 0.02
# What is printed by a process that listens, and so is back.
_SERVES = "Start Tensorflow server."


class Loss(NamedTuple):
    """What became of one loss.

    Args:
      role: "chief", "worker", "ps" or "evaluator".
      how: "killed", "killed, started late", or as `Keeper.lose` has it.
      away_secs: from the signal until the member was back: until its new process served, or until it was continued.
      still_secs: the longest time during which no step of the job ended, from the signal until all trained again.
      all_secs: from the member's return until all members that train had made a step.
      alone: whether no other loss was under way.
    """

    role: str
    how: str
    away_secs: float
    still_secs: float
    all_secs: float
    alone: bool


class Keeper:
    """Keeps the members of a job running, as a cluster's manager does, and has them fail.

    Args:
      cluster: the members.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.trainers = [task for task in cluster.tasks if task.startswith(("chief", "worker"))]
        self.restarts = 0
        self._notes = {task: Notes(str(cluster.folder / f"{task}.notes")) for task in self.trainers}
        self._steps = self.steps()
        self._last_step_at = time.monotonic()
        self._longest_still = 0.0

    def steps(self) -> dict[str, int]:
        """How many steps each member that trains has made."""
        return {task: notes.read().steps for task, notes in self._notes.items()}

    def look(self, starts_failed: bool = True) -> None:
        """Watches the steps for a moment, and starts members again that have ended with an error."""
        time.sleep(_LOOK_SECS)
        steps, now = self.steps(), time.monotonic()
        if steps != self._steps:
            self._steps, self._last_step_at = steps, now
        self._longest_still = max(self._longest_still, now - self._last_step_at)
        if starts_failed:
            for task in self.cluster.tasks:
                if (self.cluster.exit_code(task) or 0) > 0:
                    self.restarts += 1
                    self.cluster.start(task)

    def look_for(self, seconds: float, starts_failed: bool = True) -> None:
        """Looks for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.look(starts_failed)

    def wait_for_steps_of_all(self, within: float) -> None:
        """Returns when each member that trains has made a step from now on."""
        before, end = self.steps(), time.monotonic() + within
        while any(self.steps()[task] <= before[task] for task in self.trainers):
            if time.monotonic() >= end:
                idle = [task for task, steps in self.steps().items() if steps <= before[task]]
                raise TimeoutError(f"no step of {idle} within {within:.0f} s")
            self.look()

    def lose(
        self, task: str, how: str, seconds: float, others: Iterable[tuple[str, float]] = (), what: Any = None
    ) -> Loss:
        """Loses a member or what it needs, has it return, and waits until all train again.

        Args:
          task: the member.
          how: "killed"; "stopped"; "cut" or "reset" for the network between the member and another one; "files" for
            file operations that fail; "clock" for a clock that is set.
          seconds: for how long it is stopped, or how late it is started again, or for how long it lacks what it needs.
          others: members that are killed as well, and how many seconds later.
          what: the member at the other end of the network; the line that says which file operations fail; the seconds
            that the clock is set by.
        """
        started = time.monotonic()
        self._longest_still = 0.0
        self._last_step_at = started
        self._begin(task, how, what)
        for other, later in others:
            self.look_for(later)
            if self.cluster.exit_code(other) is None:
                self.cluster.kill(other)
                self.cluster.start(other)
        self.look_for(max(0.0, seconds - (time.monotonic() - started)))
        self._end(task, how, what)
        back = time.monotonic()
        self.wait_for_steps_of_all(STILL_SECS)
        kind = "killed, started late" if how == "killed" and seconds > 0 else how
        return Loss(
            task.partition("-")[0],
            kind,
            back - started,
            self._longest_still,
            time.monotonic() - back,
            not list(others),
        )

    def _begin(self, task: str, how: str, what: Any) -> None:
        if how == "killed":
            self.cluster.kill(task)
        elif how == "stopped":
            self.cluster.signal(task, signal.SIGSTOP)
        elif how == "cut":
            self.cluster.cut(task, what)
        elif how == "reset":
            self.cluster.reset(task, what)
        elif how == "files":
            self.cluster.fail_files(task, what)
        elif how == "clock":
            self.cluster.set_clock(task, what)
        else:
            raise ValueError(f"how={how!r} isn't a way to lose a member")

    def _end(self, task: str, how: str, what: Any) -> None:
        if how == "killed":
            written = len(self.cluster.log(task))
            self.cluster.start(task)
            self._wait_until_it_serves(task, written)
        elif how == "stopped":
            self.cluster.signal(task, signal.SIGCONT)
        elif how in ("cut", "reset"):
            self.cluster.mend(task, what)
        elif how == "files":
            self.cluster.fail_files(task)
        elif how == "clock":
            self.cluster.set_clock(task, 0)

    def _wait_until_it_serves(self, task: str, written: int) -> None:
        end = time.monotonic() + START_SECS
        while not task.startswith("evaluator") and _SERVES not in self.cluster.log(task)[written:]:
            if time.monotonic() >= end:
                raise TimeoutError(f"{task} didn't start within {START_SECS:.0f} s")
            self.look()
