"""The clock of a task is set forward or back by an hour in the middle of training."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from long_faults import long_only

TASKS = ("ps-0", "chief-0", "worker-0", "evaluator-0")
SETTINGS = {
    "max_steps": 2000, "save_steps": None, "save_secs": 1, "throttle_secs": 1, "step_secs": 0.05,
    "recovery_wait_secs": 0.5, "close_secs": 2,
}  # fmt: skip
HOUR = 3600
WATCHED_SECS = 5.0

pytestmark = [pytest.mark.slow, pytest.mark.one_world, pytest.mark.timeout(170)]


def evaluations(job: Any) -> int:
    return len(re.findall("Saving dict for global step", job.cluster.log("evaluator-0")))


def set_clocks(job: Any, shift: int) -> None:
    for task in TASKS:
        job.cluster.set_clock(task, shift)


def wait_until_saves_pause(job: Any, keeper: Any) -> None:
    """Returns when a second has passed without a save.

    One that has begun before the clock was set ends when the machine lets it: before the task's next step but one.
    """
    for _ in range(2):
        keeper.wait_for_steps_of_all(60)
    saves, since = job.saves()[0], time.monotonic()

    def pause() -> bool:
        nonlocal saves, since
        if job.saves()[0] != saves:
            saves, since = job.saves()[0], time.monotonic()
        return time.monotonic() - since >= 1.0

    job.cluster.wait_for("a pause of the saves", pause)


def test_a_job_outlives_clocks_that_are_set(new_job: Any) -> None:
    """Set forward, saves and evaluations keep their pace. Set back, those by time pause, as docs/dropin.md says."""
    job = new_job("chaos_task.py", TASKS, preload=True, **SETTINGS)
    keeper = job.train()
    job.cluster.wait_for("an evaluation", lambda: evaluations(job) > 0)
    started = time.monotonic()
    saves, evaluated = job.saves()[0], evaluations(job)

    def made() -> tuple[int, int]:
        return job.saves()[0] - saves, evaluations(job) - evaluated

    set_clocks(job, HOUR)
    keeper.look_for(WATCHED_SECS)
    job.cluster.wait_for("two more saves and evaluations", lambda: min(made()) >= 2)
    # No burst: one in a second, one more as the clock was set, and one that had begun before, on a busy machine.
    most = max(made())
    assert most <= time.monotonic() - started + 3
    set_clocks(job, 0)
    wait_until_saves_pause(job, keeper)
    saves = job.saves()[0]
    keeper.wait_for_steps_of_all(60)
    keeper.look_for(2.0)
    assert job.saves()[0] == saves
    assert keeper.restarts == 0
    job.assert_ends_well(0)


@long_only
@pytest.mark.parametrize("shift", [HOUR, -HOUR])
def test_the_limit_of_a_wait_stays(new_job: Any, shift: int) -> None:
    """Of a worker that waits for a parameter server which is gone: neither sooner nor later."""
    job = new_job(
        "session_task.py", TASKS[:3], preload=True, **{**SETTINGS, "save_secs": None, "save_steps": 20}, wait_secs=12
    )
    job.train()
    job.cluster.kill("ps-0")
    job.cluster.wait_for_line("worker-0", "An error was raised")
    started = time.monotonic()
    time.sleep(3)
    for task in ("chief-0", "worker-0"):
        job.cluster.set_clock(task, shift)
    # The error is written before the process waits for the sessions that it has left.
    while "DeadlineExceededError: Session was not ready after waiting 12 secs" not in job.cluster.log("worker-0"):
        assert time.monotonic() < started + 40
        time.sleep(0.05)
    # The wait has begun before its line was seen here.
    assert time.monotonic() > started + 11
    assert job.cluster.exit_codes(["chief-0", "worker-0"], 40) == {"chief-0": 1, "worker-0": 1}


@long_only
def test_what_is_kept_for_hours_is_kept_once(new_job: Any) -> None:
    """With keep_checkpoint_every_n_hours, by the clock: one more checkpoint for an hour that the clock was set."""
    job = new_job("session_task.py", TASKS[:3], preload=True, **SETTINGS, keep_every_n_hours=0.5, max_to_keep=2)
    keeper = job.train()
    job.wait_for_save()
    for shift in (HOUR, 0, -HOUR, 0):
        job.cluster.set_clock("chief-0", shift)
        keeper.look_for(3.0)
    job.assert_ends_well(0)
    kept = len(list(job.cluster.model_dir.glob("*.index")))
    assert 3 <= kept <= 5, sorted(path.name for path in job.cluster.model_dir.iterdir())
