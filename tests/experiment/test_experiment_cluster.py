"""An Experiment on a cluster of processes: each task does its part, from TF_CONFIG alone, and ends."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

TASKS = ("ps-0", "chief-0", "worker-0", "worker-1", "evaluator-0")


@pytest.mark.slow
def test_every_task_does_its_part_and_ends(tmp_path: Path, new_cluster: Any) -> None:
    with new_cluster(tmp_path, "experiment_task.py", TASKS, train_steps=1000) as cluster:
        cluster.start()
        for task in ("chief-0", "worker-0", "worker-1"):
            cluster.wait_for_line(task, "loss = ")
        cluster.hurry()
        assert cluster.exit_codes(TASKS, within=60) == dict.fromkeys(TASKS, 0)
        assert cluster.newest_step() >= 1000
        assert re.search(r"Waiting \d secs before starting training.", cluster.log("worker-1"))
        assert (
            "The job has ended: its parameter server 0 also ends. See `python -m fastsup docs dropin#clusters`."
            in cluster.log("ps-0")
        )
        evaluator = cluster.log("evaluator-0")
        assert "Exiting continuous eval, global_step=" in evaluator
        step, error = re.findall(r"Saving dict for global step (\d+): .*mae = ([\d.e-]+)", evaluator)[-1]
        assert int(step) >= 1000
        assert float(error) < 0.1
