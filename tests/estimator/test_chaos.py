"""A short chaos: members of a job are killed, and it must end on its own, at the right step, with no checkpoint lost.

`python tests/cluster/chaos.py` is the long one.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from preload import compile_preloads
from processes import Processes

v1 = tf.compat.v1


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


@pytest.fixture(scope="module")
def preloads(processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The libraries with which file operations fail and clocks are set, compiled."""
    folder = tmp_path_factory.mktemp("preloads")
    return compile_preloads(folder, ["shim", "clock"], lambda command, **settings: processes.run(*command, **settings))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(3))
def test_random_faults_of_a_job(
    chaos: Any, tmp_path: Path, processes: Processes, preloads: list[Path], seed: int
) -> None:
    """Members, the network between two, files and clocks. The nightly run of chaos.py takes more seeds."""
    outcome = chaos.run_chaos(
        tmp_path, 4, seed, chaos.TINY, starter=processes.start_python, preloads=preloads, shortened=chaos.SHORTENED
    )
    assert outcome.problems == []
    assert outcome.losses
    assert outcome.saved > 1


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


def test_the_state_of_several_steps_is_told(chaos: Any, tmp_path: Path) -> None:
    """A checkpoint whose counts are further from its step than the tasks can have brought them."""
    cluster = chaos.Cluster(tmp_path, Path("program"), chaos.TINY)
    for count, problems in ((24, 0), (25, 1)):
        with tf.Graph().as_default(), v1.Session() as session:
            v1.get_variable("global_step", [], tf.int64, initializer=v1.constant_initializer(20))
            v1.get_variable("count_0", [2], initializer=v1.constant_initializer([20, count]))
            session.run(v1.global_variables_initializer())
            v1.train.Saver().save(session, str(cluster.model_dir / "model.ckpt"), 20)
        # Two tasks train, and there was one interruption.
        assert len(chaos.problems_of_state(cluster, 1)) == problems


def test_the_journal_tells_a_lost_checkpoint(chaos: Any, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    assert chaos.journal_of(journal) == (0, [])
    journal.write_text("start 0\nsaved 0\nsaved 20\nstart 20\nsaved 40\nstart 20\nsaved 40\n")
    saved, problems = chaos.journal_of(journal)
    assert saved == 4
    assert problems == ["the chief went on from step 20, though the save of step 40 was acknowledged"]
