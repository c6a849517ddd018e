"""Two tasks of a training of collectives: their network is lost, one stands still, its files fail, clocks are set."""

from __future__ import annotations

import errno
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from long_faults import long_only

TASKS = ("chief-0", "worker-0")
# silent_secs: after so long a task without a sign of life is asked for an answer, in place of 60 s.
SETTINGS = {"max_steps": 5000, "save_steps": 10, "slow": 0.05, "silent_secs": 4.0}
# Until a silent task is lost: silent_secs and 10 s for its answer; then until the process has ended.
LOST_SECS, ENDS_SECS = 14, 40

pytestmark = [pytest.mark.slow, pytest.mark.one_world, pytest.mark.timeout(170)]


@pytest.fixture
def training(tmp_path: Path, new_cluster: Any, preloads: list[Path]) -> Iterator[Callable[..., Any]]:
    """Starts both tasks, and returns the cluster once they train and a checkpoint is there."""
    with ExitStack() as stack:

        def start(linked: bool = True, preload: bool = False, **settings: Any) -> Any:
            settings = {**SETTINGS, "eager": False, **settings}
            cluster = new_cluster(
                tmp_path, "collective_task.py", TASKS, linked=[TASKS] if linked else [],
                preloads=preloads if preload else [], **settings,
            )  # fmt: skip
            stack.enter_context(cluster)
            cluster.start()
            cluster.wait_for("a checkpoint", lambda: cluster.newest_step() > 0)
            return cluster

        yield start


def steps_of(log: str) -> list[int]:
    return [int(step) for step in re.findall(r"loss of step (\d+):", log)]


def assert_trains_on(cluster: Any) -> None:
    for task in TASKS:
        step = steps_of(cluster.log(task))[-1]
        cluster.wait_for(f"steps of {task}", lambda task=task, step=step: steps_of(cluster.log(task))[-1] > step + 5)


def assert_a_new_start_goes_on(cluster: Any) -> None:
    """From the newest checkpoint, and the two make the same steps."""
    newest = cluster.newest_step()
    before = {task: len(cluster.log(task)) for task in TASKS}
    cluster.start()
    for task in TASKS:
        cluster.wait_for("a step", lambda task=task: steps_of(cluster.log(task)[before[task] :]))
        assert steps_of(cluster.log(task)[before[task] :])[0] == newest + 1
    cluster.signal("worker-0", signal.SIGTERM)
    assert cluster.exit_codes(TASKS, ENDS_SECS) == dict.fromkeys(TASKS, 143)
    assert {steps_of(cluster.log(task))[-1] for task in TASKS} == {cluster.newest_step()}


@long_only
def test_a_short_loss_of_the_network_delays_a_step(training: Any) -> None:
    """Of 8 s, where a task counts as lost after 14."""
    cluster = training()
    cluster.cut(*TASKS)
    time.sleep(8)
    assert cluster.exit_codes(TASKS, 0) == dict.fromkeys(TASKS)
    cluster.mend(*TASKS)
    assert_trains_on(cluster)


@pytest.mark.parametrize("eager", [False, pytest.param(True, marks=long_only)])
def test_a_lost_network_ends_both_tasks(training: Any, eager: bool) -> None:
    cluster = training(eager=eager)
    cluster.cut(*TASKS)
    assert cluster.exit_codes(TASKS, LOST_SECS + ENDS_SECS) == dict.fromkeys(TASKS, 1)
    for task in TASKS:
        assert "doesn't answer: it hasn't responded for" in cluster.log(task)
    cluster.mend(*TASKS)
    assert_a_new_start_goes_on(cluster)


@long_only
def test_a_reset_of_the_network_ends_both_tasks(training: Any) -> None:
    """TensorFlow's collectives can't go on after a connection was lost."""
    cluster = training()
    cluster.reset(*TASKS)
    time.sleep(1)
    cluster.mend(*TASKS)
    assert cluster.exit_codes(TASKS, ENDS_SECS) == dict.fromkeys(TASKS, 1)
    for task in TASKS:
        assert "UnavailableError" in cluster.log(task)
    assert_a_new_start_goes_on(cluster)


@long_only
@pytest.mark.parametrize("stopped", ["worker-0", "chief-0"])
def test_a_task_that_stands_still_for_longer_than_the_limit(training: Any, stopped: str) -> None:
    """The other ends within the limit; the one that stood still ends when it goes on."""
    cluster = training(linked=False)
    cluster.signal(stopped, signal.SIGSTOP)
    (other,) = set(TASKS) - {stopped}
    assert cluster.exit_codes([other], LOST_SECS + ENDS_SECS) == {other: 1}
    cluster.signal(stopped, signal.SIGCONT)
    assert cluster.exit_codes([stopped], ENDS_SECS) == {stopped: 1}
    assert_a_new_start_goes_on(cluster)


@long_only
@pytest.mark.parametrize("fault", ["fsync,ckpt-,1,0", "create,tempstate,1,0", "rename,/,1,1"])
def test_files_of_the_chief_fail(training: Any, fault: str) -> None:
    """Both tasks end with an error that names the chief's. The next start goes on from the last checkpoint."""
    cluster = training(linked=False, preload=True)
    cluster.fail_files("chief-0", f"{fault},error {errno.EIO}")
    assert cluster.exit_codes(TASKS, ENDS_SECS) == dict.fromkeys(TASKS, 1)
    assert re.search(r"UnavailableError: chief \(localhost:\d+\) has failed: ", cluster.log("worker-0"))
    cluster.fail_files("chief-0")
    assert_a_new_start_goes_on(cluster)


@long_only
def test_clocks_that_are_set_change_nothing(training: Any) -> None:
    """Neither the signs of life nor the limits go by the time of day."""
    cluster = training(linked=False, preload=True)
    for shift in (3600, -3600):
        for task in TASKS:
            cluster.set_clock(task, shift if task == "chief-0" else -shift)
        time.sleep(SETTINGS["silent_secs"] + 1)
        assert_trains_on(cluster)
