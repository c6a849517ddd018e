"""A job of a test in which something fails: it is started, disturbed, and let run to its end."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness import Cluster
from keeper import Keeper
from outcome import journal_of, problems_of_end, problems_of_state

# Seconds from when the end is in sight to the last process's end, and to a task's first step, on a busy machine.
END_SECS, START_SECS = 60.0, 60.0


class FaultyJob:
    """The tasks of a job, and what must hold at its end.

    Args:
      folder: empty directory.
      program: path of the program, which notes steps and saves as chaos_task.py does.
      tasks: names of the tasks.
      starter: starts Python.
      linked: pairs of tasks whose network can be cut.
      preloads: libraries with which file operations fail and clocks are set.
      **settings: what the program is told.
    """

    def __init__(
        self,
        folder: Path,
        program: Path,
        tasks: Iterable[str],
        starter: Any,
        linked: Iterable[tuple[str, str]] = (),
        preloads: Iterable[Path] = (),
        **settings: Any,
    ) -> None:
        self.cluster = Cluster(folder, program, tasks, starter, linked, preloads, **settings)
        self._max_steps: int = settings["max_steps"]
        # Without an Estimator a parameter server serves until it is killed.
        self._serving = [task for task in self.cluster.tasks if task.startswith("ps")]
        if program.name != "session_task.py":
            self._serving = []
        self.keeper: Keeper | None = None

    def train(self, *tasks: str) -> Keeper:
        """Starts all tasks, or some. Returns when each that trains has made a step and a checkpoint of one is there."""
        self.cluster.start(*tasks)
        self.keeper = Keeper(self.cluster)
        self.keeper.wait_for_steps_of_all(START_SECS)
        self.wait_for_save()
        return self.keeper

    def wait_for_save(self) -> int:
        """Returns when the state file names another checkpoint than now, of a step above 0. Returns its step."""
        before = self.cluster.newest_step()
        self.cluster.wait_for("another checkpoint", lambda: self.cluster.newest_step() not in (before, 0, -1))
        return self.cluster.newest_step()

    def saves(self) -> tuple[int, list[str]]:
        """How many saves have returned, and the starts of the chief from an older state than the last of them."""
        return journal_of(self.cluster.folder / "journal")

    def assert_no_save_lost(self) -> None:
        """The chief has never started from a state that is older than the last save that had returned."""
        assert self.saves()[1] == []

    def assert_ends_well(self, interruptions: int) -> None:
        """The job, let run, ends at its last step, with exit code 0 of each task and the state of one step.

        Args:
          interruptions: how often a task may have been interrupted within a step.
        """
        self.cluster.hurry()
        self.cluster.exit_codes([task for task in self.cluster.tasks if task not in self._serving], END_SECS)
        assert problems_of_end(self.cluster, self._max_steps, self._serving) == []
        assert problems_of_state(self.cluster, interruptions) == []
        self.assert_no_save_lost()
