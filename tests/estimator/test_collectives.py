"""Training with MultiWorkerMirroredStrategy in their own processes: what it computes, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from processes import Processes

TASKS = ("chief-0", "worker-0")
THREE = ("worker-0", "worker-1", "worker-2")
PROGRAM = Path(__file__).parents[1] / "cluster" / "collective_task.py"
# Seconds from when the end is in sight to the last process's end, on a busy machine.
END_SECS = 60
LONG = {"max_steps": 5000, "save_steps": 10, "slow": 0.1}

pytestmark = pytest.mark.slow
long_only = pytest.mark.skipif(
    os.environ.get("FASTSUP_COLLECTIVES") != "long", reason="takes long: FASTSUP_COLLECTIVES=long runs it"
)


@pytest.fixture
def start(tmp_path: Path, new_cluster: Any) -> Iterator[Callable[..., Any]]:
    """Starts the tasks of a job: start(tasks, settings)."""
    with ExitStack() as stack:

        def start_(*tasks: str, **settings: Any) -> Any:
            cluster = stack.enter_context(new_cluster(tmp_path, PROGRAM.name, tasks, **settings))
            cluster.start()
            return cluster

        yield start_


@pytest.fixture
def train_alone(alone_dir: Path, processes: Processes) -> Callable[..., str]:
    """The same training in one process, with the batches of all workers. Returns what it has printed."""

    def train(**settings: Any) -> str:
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
        done = processes.python(PROGRAM, alone_dir / "model", json.dumps(settings), cwd=alone_dir, env=environment)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return train


def losses(output: str) -> dict[int, float]:
    """The losses that a program has printed, by step: the last one of each."""
    return {int(step): float(loss) for step, loss in re.findall(r"loss of step (\d+): (\S+)", output)}


def variables(model_dir: Path) -> dict[str, Any]:
    reader = tf.train.load_checkpoint(str(model_dir))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def assert_same_training(cluster: Any, alone: str, alone_dir: Path) -> None:
    """Every task has seen the losses of the training in one process, and the last checkpoint has its variables."""
    expected = losses(alone)
    for task in cluster.tasks:
        found = losses(cluster.log(task))
        assert list(found) == list(expected)
        # A sum in another order: the last bits may differ.
        np.testing.assert_allclose(list(found.values()), list(expected.values()), rtol=1e-5)
    ours, theirs = variables(cluster.model_dir), variables(alone_dir / "model")
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def codes(cluster: Any, *tasks: str) -> list[int | None]:
    return list(cluster.exit_codes(tasks, END_SECS).values())


@pytest.fixture
def alone_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("alone")


def test_two_tasks_train_what_one_process_does(start: Any, train_alone: Any, alone_dir: Path) -> None:
    """In graph mode, where the Estimator starts the server. The save waits for both: one variable is reduced in it."""
    cluster = start(*TASKS, eager=False, batch_norm=True)
    alone = train_alone(eager=False, batch_norm=True)
    assert codes(cluster, *TASKS) == [0, 0]
    assert_same_training(cluster, alone, alone_dir)
    # One writes, and each says what it has trained.
    assert "Saving checkpoints for 12 into" in cluster.log("chief-0")
    assert "Saving checkpoints" not in cluster.log("worker-0")
    events = [path for path in cluster.model_dir.iterdir() if "tfevents" in path.name]
    tags = {value.tag for path in events for event in tf.compat.v1.train.summary_iterator(str(path))
            for value in event.summary.value}  # fmt: skip
    assert len(events) == 1
    assert {"loss", "global_step/sec"} <= tags
    assert sorted(path.name for path in (cluster.model_dir / "ended_tasks").iterdir()) == [
        "chief-0.json",
        "worker-0.json",
    ]


def test_a_killed_worker_ends_the_job_and_a_restart_resumes(start: Any, tmp_path: Path) -> None:
    """With eager execution, in which the strategy starts the server."""
    cluster = start(*TASKS, **LONG)
    cluster.wait_for("a checkpoint of a step", lambda: cluster.newest_step() > 0)
    cluster.kill("worker-0")
    assert codes(cluster, "chief-0") == [1]
    assert re.search(
        r"UnavailableError: worker 0 \(localhost:\d+\) is gone: no process listens", cluster.log("chief-0")
    )
    assert not (cluster.model_dir / "ended_tasks").exists()
    newest = cluster.newest_step()
    before = {task: len(cluster.log(task)) for task in TASKS}
    cluster.start()
    for task in TASKS:
        cluster.wait_for("a step", lambda task=task: "loss of step" in cluster.log(task)[before[task] :])
        assert next(iter(losses(cluster.log(task)[before[task] :]))) == newest + 1
    # SIGTERM of one of them, which a launcher forwards once more: all stop at the same step, with a checkpoint.
    for _ in range(2):
        cluster._processes["worker-0"].send_signal(signal.SIGTERM)
        time.sleep(0.02)
    assert codes(cluster, *TASKS) == [143, 143]
    last = [list(losses(cluster.log(task)))[-1] for task in TASKS]
    assert last[0] == last[1] == cluster.newest_step()
    assert "worker 0: it has got SIGTERM" in cluster.log("chief-0")


def test_a_worker_s_own_error_is_what_the_others_end_with(start: Any) -> None:
    cluster = start(*TASKS, **{**LONG, "fails_at": ["worker-0", 3]})
    assert codes(cluster, *TASKS) == [1, 1]
    assert "UnavailableError: worker 0 (" in cluster.log("chief-0")
    assert "has failed: ValueError: the worker's own mistake" in cluster.log("chief-0")
    assert cluster.log("worker-0").rstrip().rpartition("\n")[2] == "ValueError: the worker's own mistake"


@long_only
def test_a_variable_that_is_reduced_when_it_is_read_saved_by_time(
    start: Any, train_alone: Any, alone_dir: Path
) -> None:
    settings = {"batch_norm": True, "eager": False, "save_steps": None, "save_secs": 1}
    cluster = start(*TASKS, **settings, slow=0.3)
    alone = train_alone(**settings)
    assert codes(cluster, *TASKS) == [0, 0]
    assert_same_training(cluster, alone, alone_dir)
    assert 3 <= cluster.log("chief-0").count("Saving checkpoints for") <= 8


@long_only
def test_three_tasks_without_a_chief(start: Any, train_alone: Any, alone_dir: Path) -> None:
    """Worker 0 is the chief. Three shares of eight rows aren't equal: six are."""
    cluster = start(*THREE, eager=False, rows=6)
    alone = train_alone(eager=False, rows=6)
    assert codes(cluster, *THREE) == [0, 0, 0]
    assert_same_training(cluster, alone, alone_dir)
    assert "Saving checkpoints for 12 into" in cluster.log("worker-0")


@long_only
@pytest.mark.parametrize("lost", ["worker-0", "worker-2"])
def test_of_three_tasks_one_is_killed(start: Any, lost: str) -> None:
    cluster = start(*THREE, **LONG)
    for task in THREE:
        cluster.wait_for_line(task, "loss of step 5:")
    cluster.kill(lost)
    others = [task for task in THREE if task != lost]
    assert codes(cluster, *others) == [1, 1]
    for task in others:
        assert re.search(rf"UnavailableError: .*{lost.replace('-', ' ')} \(localhost:\d+\)", cluster.log(task))


@long_only
@pytest.mark.parametrize("lost", TASKS)
def test_a_stopped_task_counts_as_lost_after_a_while(start: Any, lost: str) -> None:
    """A pause of some seconds doesn't matter."""
    cluster = start(*TASKS, **LONG, eager=False)
    for task in TASKS:
        cluster.wait_for_line(task, "loss of step 5:")
    process = cluster._processes[lost]
    process.send_signal(signal.SIGSTOP)
    time.sleep(15)
    process.send_signal(signal.SIGCONT)
    step = list(losses(cluster.log(lost)))[-1]
    cluster.wait_for_line(lost, f"loss of step {step + 5}:")
    process.send_signal(signal.SIGSTOP)
    other = TASKS[1 - TASKS.index(lost)]
    assert list(cluster.exit_codes([other], 100).values()) == [1]
    assert "doesn't answer: it hasn't responded for" in cluster.log(other)


@long_only
def test_with_eager_execution_a_pause_of_the_chief_ends_the_job(start: Any) -> None:
    """By TensorFlow's coordination service, which doesn't wait as long."""
    cluster = start(*TASKS, **LONG)
    for task in TASKS:
        cluster.wait_for_line(task, "loss of step 5:")
    cluster._processes["chief-0"].send_signal(signal.SIGSTOP)
    time.sleep(25)
    cluster._processes["chief-0"].send_signal(signal.SIGCONT)
    assert codes(cluster, *TASKS) == [1, 1]
    assert "worker 0 (localhost" in cluster.log("chief-0")
    assert "CoordinationService" in cluster.log("worker-0")


@long_only
@pytest.mark.parametrize("task", TASKS)
def test_sigint_of_one_ends_all(start: Any, task: str) -> None:
    cluster = start(*TASKS, **LONG)
    cluster.wait_for_line("worker-0", "loss of step 5:")
    cluster._processes[task].send_signal(signal.SIGINT)
    found = cluster.exit_codes(TASKS, END_SECS)
    assert found == {name: -signal.SIGINT if name == task else 130 for name in TASKS}
    assert cluster.newest_step() == max(losses(cluster.log("worker-0")))


@long_only
def test_early_stopping_stops_all_at_the_same_step(start: Any) -> None:
    cluster = start(*TASKS, stop_early_at=4)
    assert codes(cluster, *TASKS) == [0, 0]
    steps = [max(losses(cluster.log(task))) for task in TASKS]
    assert steps[0] == steps[1] == cluster.newest_step() < 12


@long_only
def test_trainings_one_after_the_other(start: Any, train_alone: Any, alone_dir: Path) -> None:
    """Each goes on from the checkpoint of the one before it."""
    settings = {"trainings": 3, "max_steps": 4}
    cluster = start(*TASKS, **settings)
    alone = train_alone(**settings)
    assert codes(cluster, *TASKS) == [0, 0]
    assert_same_training(cluster, alone, alone_dir)


@long_only
def test_an_evaluator_evaluates_the_last_checkpoint(start: Any) -> None:
    cluster = start(*TASKS, "evaluator-0")
    assert codes(cluster, *TASKS, "evaluator-0") == [0, 0, 0]
    assert "Saving dict for global step 12" in cluster.log("evaluator-0")


@long_only
@pytest.mark.parametrize("short", TASKS)
def test_an_input_that_ends_early_is_named(start: Any, short: str) -> None:
    """What would wait for ever in TensorFlow."""
    batches = {task: 5 if task == short else 8 for task in TASKS}
    cluster = start(*TASKS, batches=batches, eager=False)
    other = TASKS[1 - TASKS.index(short)]
    assert codes(cluster, other) == [1]
    assert "ended its training after 5 steps, while this task waits for it in step 6" in cluster.log(other)


@long_only
def test_inputs_of_the_same_length_end_the_training(start: Any) -> None:
    cluster = start(*TASKS, batches=dict.fromkeys(TASKS, 7), eager=False)
    assert codes(cluster, *TASKS) == [0, 0]
    assert cluster.newest_step() == 7


@long_only
@pytest.mark.parametrize("executor", ["inline", "single_threaded", "thread_pool"])
def test_every_executor_runs_collectives(start: Any, executor: str) -> None:
    cluster = start(*TASKS, executor=executor, max_steps=200, eager=False)
    assert codes(cluster, *TASKS) == [0, 0]
    assert cluster.newest_step() == 200
