"""A cluster of processes, one of which is killed in mid-run: what the others do, and what becomes of the training."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

TASKS = ("ps-0", "chief-0", "worker-0", "worker-1", "evaluator-0")
SAVE_STEPS = 10
MAX_STEPS = 1000
# Seconds from when the end is in sight to the last process's end, on a busy machine.
END_SECS = 40

pytestmark = pytest.mark.slow


@pytest.fixture
def training(tmp_path: Path, new_cluster: Any) -> Iterator[Callable[..., Any]]:
    """Starts a cluster, and returns it when the chief and the workers train and a checkpoint was evaluated."""
    with ExitStack() as stack:

        def start(**settings: Any) -> Any:
            settings = {"max_steps": MAX_STEPS, "save_steps": SAVE_STEPS, **settings}
            cluster = stack.enter_context(new_cluster(tmp_path, "training_task.py", TASKS, **settings))
            cluster.start()
            for task in ("chief-0", "worker-0", "worker-1"):
                cluster.wait_for_line(task, "loss = ")
            cluster.wait_for_line("evaluator-0", "Saving dict for global step")
            cluster.wait_for("a checkpoint of a step", lambda: cluster.newest_step() > 0)
            return cluster

        yield start


def assert_ended_well(cluster: Any, *tasks: str) -> None:
    """The training has come to its end, the last checkpoint was evaluated, and these tasks ended with exit code 0."""
    assert cluster.exit_codes(tasks, END_SECS) == dict.fromkeys(tasks, 0)
    assert cluster.newest_step() >= MAX_STEPS
    assert last_evaluated(cluster) >= MAX_STEPS


def last_evaluated(cluster: Any) -> int:
    return int(re.findall(r"Saving dict for global step (\d+)", cluster.log("evaluator-0"))[-1])


def restored(cluster: Any, task: str) -> list[int]:
    """The steps of the checkpoints that a task has restored, in order."""
    return [int(step) for step in re.findall(r"Restoring parameters from .*/model\.ckpt-(\d+)", cluster.log(task))]


def test_a_worker_is_killed_and_the_others_train_on(training: Any) -> None:
    cluster = training(workers_secs=3)
    cluster.kill("worker-1")
    step = cluster.newest_step()
    cluster.wait_for("a further checkpoint", lambda: cluster.newest_step() > step)
    cluster.hurry()
    assert_ended_well(cluster, "ps-0", "chief-0", "worker-0", "evaluator-0")
    for task in ("chief-0", "worker-0"):
        assert "An error was raised" not in cluster.log(task)
    assert (
        "The job has ended: its parameter server 0 also ends. See `python -m fastsup docs dropin#clusters`."
        in cluster.log("ps-0")
    )


def test_workers_whose_data_lasts_longer_than_the_chief_s_train_to_their_end(training: Any) -> None:
    cluster = training(workers_secs=3, chief_batches=50)
    cluster.wait_for("the end of the chief", lambda: cluster.exit_code("chief-0") == 0)
    ended = time.monotonic()
    cluster.wait_for("three times the grace", lambda: time.monotonic() - ended > 9)
    assert cluster.exit_codes(["evaluator-0"], END_SECS) == {"evaluator-0": 0}
    cluster.kill("worker-1")
    cluster.hurry()
    assert cluster.exit_codes(["ps-0", "worker-0"], END_SECS) == {"ps-0": 0, "worker-0": 0}
    assert "Loss for final step" in cluster.log("worker-0")


def test_a_worker_that_is_started_again_joins_in(training: Any) -> None:
    cluster = training()
    cluster.kill("worker-1")
    before = len(cluster.log("worker-1"))
    cluster.start("worker-1")
    cluster.wait_for("its first step", lambda: "loss = " in cluster.log("worker-1")[before:])
    # It joins the training, it doesn't start one.
    assert int(re.findall(r"loss = .*, step = (\d+)", cluster.log("worker-1")[before:])[0]) > 0
    cluster.hurry()
    assert_ended_well(cluster, *TASKS)
    assert restored(cluster, "chief-0") == []


def test_a_chief_that_is_started_again_goes_on_from_the_last_checkpoint(training: Any) -> None:
    cluster = training()
    cluster.kill("chief-0")
    newest = cluster.newest_step()
    cluster.start("chief-0")
    cluster.wait_for("a further checkpoint", lambda: cluster.newest_step() > newest)
    assert restored(cluster, "chief-0") == [newest]
    cluster.hurry()
    assert_ended_well(cluster, *TASKS)


def test_tasks_that_get_sigterm_are_expected_back(training: Any) -> None:
    """A preemption, as by Kubernetes: a chief saves first, and no task says that it has ended."""
    cluster = training()
    for task, code in (
        ("chief-0", 143),
        ("worker-0", 143),
        ("ps-0", 143),
        ("evaluator-0", -signal.SIGTERM),
    ):
        cluster.signal(task, signal.SIGTERM)
        assert cluster.exit_codes([task], END_SECS) == {task: code}
        assert not list(cluster.model_dir.glob("ended_tasks/*"))
        if task == "chief-0":
            saved = cluster.newest_step()
            assert f"Saving checkpoints for {saved} into" in cluster.log(task)
        cluster.start(task)
        step = cluster.newest_step()
        cluster.wait_for("a further checkpoint", lambda step=step: cluster.newest_step() > step)
    assert restored(cluster, "chief-0")[0] == saved
    cluster.hurry()
    assert_ended_well(cluster, *TASKS)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)])
@pytest.mark.parametrize("first", ["ps-0", "chief-0"])
def test_a_signal_to_all_tasks_at_once_loses_nothing(training: Any, number: int, code: int, first: str) -> None:
    """The parameter server stays for the last checkpoint of the chief."""
    cluster = training(save_steps=25)
    cluster.wait_for("a checkpoint", lambda: cluster.newest_step() >= 25)
    seen = cluster.newest_step()
    for task in sorted(TASKS, key=lambda task: task != first):
        cluster.signal(task, number)
    ended = ("ps-0", "chief-0", "worker-0", "worker-1")
    assert cluster.exit_codes(ended, END_SECS) == dict.fromkeys(ended, code)
    last = cluster.newest_step()
    assert last >= seen
    assert f"After the signal: the last checkpoint is {cluster.model_dir}/model.ckpt-{last}." in cluster.log("chief-0")
    assert "parameter server 0 continues until the chief and workers have ended" in cluster.log("ps-0")


def test_a_chief_is_killed_for_good(training: Any) -> None:
    cluster = training(wait_secs=5)
    cluster.kill("chief-0")
    cluster.hurry()
    # The workers don't need it. Those who wait for checkpoints, or for the job's end, don't wait for ever.
    codes = cluster.exit_codes(["worker-0", "worker-1", "ps-0", "evaluator-0"], END_SECS)
    assert codes == {"worker-0": 0, "worker-1": 0, "ps-0": 1, "evaluator-0": 1}
    for task in ("ps-0", "evaluator-0"):
        assert "DeadlineExceededError: No chief or worker has answered for" in cluster.log(task)


def test_a_parameter_server_that_is_started_again_gets_the_last_checkpoint(training: Any) -> None:
    cluster = training()
    cluster.kill("ps-0")
    newest = cluster.newest_step()
    cluster.start("ps-0")
    cluster.wait_for("a further checkpoint", lambda: cluster.newest_step() > newest)
    assert restored(cluster, "chief-0") == [newest]
    cluster.hurry()
    assert_ended_well(cluster, *TASKS)
    for task in ("chief-0", "worker-0", "worker-1"):
        assert_loss_is_reported(cluster, task)


def test_a_parameter_server_is_killed_for_good(training: Any) -> None:
    cluster = training(wait_secs=5, close_secs=2)
    cluster.kill("ps-0")
    others = ["chief-0", "worker-0", "worker-1", "evaluator-0"]
    assert cluster.exit_codes(others, END_SECS) == dict.fromkeys(others, 1)
    for task in others[:-1]:
        assert_loss_is_reported(cluster, task)
        # The error at the end says what was waited for, and why it had to be.
        cause, _, error = cluster.log(task).rpartition("The above exception was the direct cause of the following")
        assert "UnavailableError" in cause
        assert re.search(r"DeadlineExceededError: .*an answer from every task of the cluster", error)
    assert "DeadlineExceededError: No chief or worker has answered for" in cluster.log("evaluator-0")


def assert_loss_is_reported(cluster: Any, task: str) -> None:
    warning = cluster.log(task).partition("WARNING:tensorflow:An error was raised.")[2]
    assert re.match(r"[^\n]*parameter server(?s:.{,3000})/job:ps/replica:0/task:0", warning), task


def test_synchronous_replicas_wait_for_a_worker_that_is_started_again(tmp_path: Path, new_cluster: Any) -> None:
    """`SyncReplicasOptimizer`: a step of the chief is one of the worker, too."""
    tasks = ("ps-0", "chief-0", "worker-0")
    settings = {"max_steps": MAX_STEPS, "save_steps": SAVE_STEPS, "sync_replicas": 2}
    with new_cluster(tmp_path, "training_task.py", tasks, **settings) as cluster:
        cluster.start()
        cluster.wait_for("a checkpoint of a step", lambda: cluster.newest_step() > 0)
        cluster.kill("worker-0")
        time.sleep(2)
        step = cluster.newest_step()
        time.sleep(2)
        assert cluster.newest_step() == step
        cluster.start("worker-0")
        cluster.wait_for("a further checkpoint", lambda: cluster.newest_step() > step)
        cluster.hurry()
        cluster.wait_for("the last checkpoint", lambda: cluster.newest_step() >= MAX_STEPS)
        # The chief's end takes two minutes, as in TensorFlow: so long it waits for the thread of its queue runner.
        assert cluster.exit_codes(["worker-0"], END_SECS) == {"worker-0": 0}


def test_an_evaluator_that_is_started_again_evaluates_the_last_checkpoint(training: Any) -> None:
    cluster = training()
    cluster.kill("evaluator-0")
    cluster.hurry()
    trained = ("chief-0", "worker-0", "worker-1", "ps-0")
    assert cluster.exit_codes(trained, END_SECS) == dict.fromkeys(trained, 0)
    assert last_evaluated(cluster) < MAX_STEPS
    cluster.start("evaluator-0")
    assert_ended_well(cluster, "evaluator-0")
