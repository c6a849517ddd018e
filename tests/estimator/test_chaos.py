"""A short chaos: members of a job are killed, and it must end by itself, at the right step, with no checkpoint lost.

`python tests/cluster/chaos.py` is the long one.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from processes import Processes


@pytest.fixture(scope="module")
def chaos() -> Any:
    path = Path(__file__).parents[1] / "cluster" / "chaos.py"
    spec = importlib.util.spec_from_file_location("cluster_chaos", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_job_whose_members_are_lost_ends_by_itself(chaos: Any, tmp_path: Path, processes: Processes) -> None:
    lost = [("ps-0", "killed", 0.0), ("chief-0", "killed", 0.0), ("worker-0", "stopped", 1.0)]
    outcome = chaos.run_chaos(
        tmp_path, seconds=15, seed=0, tasks=chaos.SMALL, planned=lost, starter=processes.start_python
    )
    assert outcome.problems == []
    assert [(loss.role, loss.how) for loss in outcome.losses] == [
        ("ps", "killed"), ("chief", "killed"), ("worker", "stopped")
    ]  # fmt: skip
    assert outcome.saved > 1
    # The workers look early: they don't wait for recovery_wait_secs, which is 30 s.
    assert outcome.losses[0].all_secs < 25


def test_what_the_table_says(chaos: Any) -> None:
    losses = [
        chaos.Loss("ps", "killed", 5.0, 9.0, 4.0, True),
        chaos.Loss("ps", "killed", 5.0, 7.0, 2.0, True),
        chaos.Loss("ps", "killed", 5.0, 99.0, 99.0, False),
        chaos.Loss("worker", "stopped", 10.0, 0.1, 0.3, True),
    ]
    assert chaos.table_of(losses).splitlines()[2:] == [
        "| `ps` killed | 2 | 5.0 | 8.0 | 4.0 | 3.0 | 4.0 |",
        "| `worker` stopped | 1 | 10.0 | 0.1 | 0.0 | 0.3 | 0.3 |",
    ]


def test_the_journal_tells_a_lost_checkpoint(chaos: Any, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    assert chaos.journal_of(journal) == (0, [])
    journal.write_text("start 0\nsaved 0\nsaved 20\nstart 20\nsaved 40\nstart 20\nsaved 40\n")
    saved, problems = chaos.journal_of(journal)
    assert saved == 4
    assert problems == ["the chief went on from step 20, though the save of step 40 was acknowledged"]
