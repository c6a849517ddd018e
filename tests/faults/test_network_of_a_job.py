"""The network between two tasks of a job is lost: for a while, or until the task is started again."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from long_faults import long_only

TASKS = ("ps-0", "chief-0", "worker-0")
PAIRS = (("chief-0", "ps-0"), ("worker-0", "ps-0"), ("chief-0", "worker-0"))
SETTINGS = {"max_steps": 800, "save_steps": 20, "step_secs": 0.05, "recovery_wait_secs": 0.5}
# Limits of a job, in seconds: of a wait for other tasks, and of closing a session.
LIMITS = {"wait_secs": 4, "close_secs": 2}
# What a task needs to find the loss, wait, close its session and end, on a busy machine.
WITHIN_SECS = 60

pytestmark = [pytest.mark.slow, pytest.mark.one_world, pytest.mark.timeout(170)]


def assert_goes_on(job: Any, trains_on: str, cut_off: str) -> None:
    """One task trains on; the other one does when the network is back and it is started again."""
    steps = job.keeper.steps()[trains_on]
    job.keeper.look_for(1.0, starts_failed=False)
    assert job.keeper.steps()[trains_on] > steps
    job.cluster.mend(cut_off, "ps-0")
    job.cluster.start(cut_off)
    job.keeper.wait_for_steps_of_all(WITHIN_SECS)
    job.assert_ends_well(4)


@pytest.mark.parametrize("program", ["session_task.py", pytest.param("chaos_task.py", marks=long_only)])
def test_training_outlives_a_lost_network(new_job: Any, program: str) -> None:
    """Between each two tasks, silently and with a reset."""
    job = new_job(program, TASKS, linked=PAIRS, **SETTINGS)
    keeper = job.train()
    losses = 0
    for how in ("cut", "reset"):
        for first, second in PAIRS:
            keeper.lose(first, how, 1.0, what=second)
            losses += 1
    assert keeper.restarts == 0
    job.assert_ends_well(2 * losses)


@pytest.mark.parametrize(
    ("cut_off", "goes_on"), [("chief-0", "worker-0"), pytest.param("worker-0", "chief-0", marks=long_only)]
)
def test_a_task_that_hears_nothing_of_its_parameter_server_fails(new_job: Any, cut_off: str, goes_on: str) -> None:
    """No connection is closed. Its session is closed in place of that; a new one waits until the limit."""
    settings = {**SETTINGS, **LIMITS, "silent_secs": 4}
    job = new_job("session_task.py", TASKS, linked=[(cut_off, "ps-0")], **settings)
    job.train()
    job.cluster.cut(cut_off, "ps-0")
    assert job.cluster.exit_codes([cut_off], WITHIN_SECS) == {cut_off: 1}
    log = job.cluster.log(cut_off)
    assert "No step has finished for 4 s, and " in log
    assert "DeadlineExceededError: Session was not ready after waiting 4 secs" in log
    assert_goes_on(job, goes_on, cut_off)


@pytest.mark.parametrize("stopped", [pytest.param(False, marks=long_only), True])
def test_a_new_session_trains_on_after_a_long_silence(new_job: Any, stopped: bool) -> None:
    """If the network is back before the limit, or the process of the parameter server goes on, no task ends."""
    job = new_job("session_task.py", TASKS, linked=[] if stopped else PAIRS[:1], **{**SETTINGS, "silent_secs": 3})
    keeper = job.train()
    job.cluster.signal("ps-0", signal.SIGSTOP) if stopped else job.cluster.cut("chief-0", "ps-0")
    job.cluster.wait_for("its end", lambda: "Cancelling the operations that wait for it" in job.cluster.log("chief-0"))
    job.cluster.signal("ps-0", signal.SIGCONT) if stopped else job.cluster.mend("chief-0", "ps-0")
    keeper.wait_for_steps_of_all(WITHIN_SECS)
    assert keeper.restarts == 0
    job.assert_ends_well(4)


@long_only
@pytest.mark.parametrize(("cut_off", "goes_on"), [("worker-0", "chief-0"), ("chief-0", "worker-0")])
def test_a_task_cut_off_from_its_parameter_server_fails(new_job: Any, cut_off: str, goes_on: str) -> None:
    """Within the limit, with an error that names the server. The other one trains on; and a new start goes on."""
    job = new_job("session_task.py", TASKS, linked=[(cut_off, "ps-0")], **SETTINGS, **LIMITS)
    job.train()
    job.cluster.reset(cut_off, "ps-0")
    assert job.cluster.exit_codes([cut_off], WITHIN_SECS) == {cut_off: 1}
    log = job.cluster.log(cut_off)
    assert "DeadlineExceededError: Session was not ready after waiting 4 secs" in log
    assert "ps 0 at localhost:" in log
    assert_goes_on(job, goes_on, cut_off)
