"""File operations of one task of a job fail in the model directory, which all tasks share."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from long_faults import long_only

TASKS = ("ps-0", "chief-0", "worker-0", "evaluator-0")
SETTINGS = {"max_steps": 800, "save_steps": 20, "step_secs": 0.05, "recovery_wait_secs": 0.5, "close_secs": 2}
# Of the chief's operations: which one, in which files, from the first to the last one that fails (0: without end).
FAULTS_OF_THE_CHIEF = (
    f"create,.fastsup,1,0,error {errno.ENOSPC}",
    f"fsync,ckpt-,1,1,error {errno.EIO}",
    f"rename,/checkpoint,1,1,error {errno.ESTALE}",
    f"list,/,1,0,error {errno.EIO}",
    f"any,/,7,7,error {errno.EIO}",
)
FAULTS_OF_OTHERS = {
    "worker-0": [f"any,/,1,0,error {errno.EIO}"],
    "ps-0": [f"any,/,1,0,error {errno.ESTALE}"],
    "evaluator-0": [f"open,.index,1,0,error {errno.ESTALE}", f"any,/,5,5,error {errno.EIO}"],
}
WITHIN_SECS = 40

pytestmark = [pytest.mark.slow, pytest.mark.one_world, pytest.mark.timeout(170)]


def test_files_of_the_chief_fail(new_job: Any) -> None:
    """The chief goes on, or ends with an error and is started again. No save that has returned is lost."""
    job = new_job("chaos_task.py", TASKS, preload=True, **SETTINGS)
    keeper = job.train()
    for fault in FAULTS_OF_THE_CHIEF:
        failed = len(job.cluster.failed_files("chief-0"))
        keeper.lose("chief-0", "files", 2.0, what=fault)
        assert len(job.cluster.failed_files("chief-0")) > failed, fault
        job.wait_for_save()
    job.assert_ends_well(2 * len(FAULTS_OF_THE_CHIEF) + keeper.restarts)


def test_files_of_the_other_tasks_fail(new_job: Any) -> None:
    """Training goes on, and a parameter server serves. An evaluator that fails is started again."""
    job = new_job("chaos_task.py", TASKS, preload=True, **SETTINGS)
    keeper = job.train()
    for task, faults in FAULTS_OF_OTHERS.items():
        for fault in faults:
            failed = len(job.cluster.failed_files(task))
            keeper.lose(task, "files", 3.0, what=fault)
            job.wait_for_save()
            # A worker of training uses no files.
            assert (len(job.cluster.failed_files(task)) > failed) is (task != "worker-0"), fault
    assert job.cluster.log("ps-0").count("Start Tensorflow server.") == 1
    job.assert_ends_well(2 * keeper.restarts)


@pytest.mark.parametrize(
    ("program", "task", "fault"),
    [
        ("chaos_task.py", "chief-0", "create,/,1,0"),
        pytest.param("session_task.py", "chief-0", "create,/,1,0", marks=long_only),
        # A parameter server writes the values of its variables.
        pytest.param("chaos_task.py", "ps-0", "create,tempstate,1,0", marks=long_only),
    ],
)
def test_a_full_disk_ends_the_chief_with_an_error(new_job: Any, program: str, task: str, fault: str) -> None:
    """Its exit code isn't 0: what it has trained since the last save isn't saved. A new start goes on from there."""
    tasks = TASKS if program == "chaos_task.py" else TASKS[:3]
    job = new_job(program, tasks, preload=True, **SETTINGS)
    keeper = job.train()
    job.cluster.fail_files(task, f"{fault},error {errno.ENOSPC}")
    assert job.cluster.exit_codes(["chief-0"], WITHIN_SECS) == {"chief-0": 1}
    assert "ResourceExhaustedError" in job.cluster.log("chief-0")
    assert job.cluster.exit_code("worker-0") is None
    job.cluster.fail_files(task)
    job.cluster.start("chief-0")
    keeper.wait_for_steps_of_all(WITHIN_SECS)
    job.assert_ends_well(4)
