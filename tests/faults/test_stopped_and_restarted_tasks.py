"""Tasks of a job stand still, are killed and started again, come late, or come back at another address."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from long_faults import long_only

TASKS = ("ps-0", "chief-0", "worker-0")
WITH_EVALUATOR = (*TASKS, "evaluator-0")
# wait_secs is the limit of a wait for other tasks, close_secs that of closing a session.
SETTINGS = {
    "max_steps": 600, "save_steps": 20, "step_secs": 0.05, "recovery_wait_secs": 0.5, "wait_secs": 20, "close_secs": 2,
}  # fmt: skip
# The chief's recoveries pause for 51 s in all, as docs/recovery.md says; the rest is for a busy machine.
WITHIN_SECS = 100

pytestmark = [pytest.mark.slow, pytest.mark.one_world, pytest.mark.timeout(170)]


def test_a_job_outlives_stopped_and_killed_tasks(new_job: Any) -> None:
    """Without an Estimator. A stop is longer than the limit of a wait: it delays the job, and ends nothing."""
    job = new_job("session_task.py", TASKS, **{**SETTINGS, "wait_secs": 3})
    keeper = job.train()
    for task in TASKS:
        keeper.lose(task, "stopped", 4.0)
    for task in TASKS:
        keeper.lose(task, "killed", 0.0)
        job.wait_for_save()
    assert keeper.restarts == 0
    job.assert_ends_well(2 * len(TASKS))


def test_a_late_worker_joins_in(new_job: Any) -> None:
    """The chief's server waits for all tasks of the cluster, so training begins when the worker is there."""
    job = new_job("session_task.py", TASKS, **SETTINGS)
    job.cluster.start("ps-0", "chief-0")
    job.cluster.wait_for_line("chief-0", "worker 0 at localhost:")
    job.train("worker-0")
    job.assert_ends_well(0)


@long_only
def test_a_chief_at_another_port_ends_within_the_limit(new_job: Any) -> None:
    """The others know its old address alone: a parameter server can't reach it, and each of its sessions fails.

    The job goes on once all tasks were started with the new address.
    """
    job = new_job("chaos_task.py", WITH_EVALUATOR, **{**SETTINGS, "wait_secs": 5})
    job.train()
    job.cluster.kill("chief-0")
    job.cluster.move("chief-0")
    job.cluster.start("chief-0")
    codes = job.cluster.exit_codes(["chief-0"], WITHIN_SECS)
    assert codes == {"chief-0": 1}, job.cluster.log("chief-0")[-3000:]
    for task in ("worker-0", "ps-0", "evaluator-0"):
        if job.cluster.exit_code(task) is None:
            job.cluster.kill(task)
    job.train()
    job.assert_ends_well(4)


def test_files_of_earlier_jobs(new_job: Any) -> None:
    """A state file that names files which are gone, half-written files, and notes that tasks have ended."""
    job = new_job("chaos_task.py", WITH_EVALUATOR, **SETTINGS)
    job.train()
    for task in WITH_EVALUATOR:
        job.cluster.kill(task)
    saved = job.cluster.newest_step()
    model: Path = job.cluster.model_dir
    state = (model / "checkpoint").read_text()
    (model / "checkpoint").write_text(state.replace(f"ckpt-{saved}", "ckpt-9999"))
    (model / "checkpoint.fastsup-0123456789").write_text(state[:20])
    (model / "model.ckpt-9998.data-00000-of-00001").write_bytes(b"half")
    (model / "model.ckpt-9997_temp").mkdir()
    (model / "model.ckpt-9997_temp" / "part-00000-of-00001.data-00000-of-00001.tempstate1").write_bytes(b"half")
    (model / "ended_tasks").mkdir()
    for task in ("chief-0", "worker-0"):
        (model / "ended_tasks" / f"{task}.json").write_text(
            json.dumps({"id": task, "ended": "2001-01-01T00:00:00+0000"})
        )
    # A parameter server looks every two seconds. The notes are as old as the job: they count after ten minutes.
    job.cluster.start("ps-0", "evaluator-0")
    assert job.cluster.exit_codes(["ps-0", "evaluator-0"], 5) == {"ps-0": None, "evaluator-0": None}
    job.train("chief-0", "worker-0")
    restored = re.findall(r"Restoring parameters from .*/model\.ckpt-(\d+)", job.cluster.log("chief-0"))
    assert int(restored[-1]) == saved
    job.assert_ends_well(2)
