"""The files by which tasks learn that their job has ended: which ones count, when, and how long tasks wait."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import tensorflow as tf
from tensorflow.python.training import server_lib

from fastsup import estimator
from fastsup.cluster import job_completion, peer_liveness, server
from fastsup.cluster.job_completion import JobCompletionWatcher, mark_task_ended, mark_task_started


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock of the watchers, in seconds."""
    clock = [100.0]
    monkeypatch.setattr(job_completion.time, "monotonic", lambda: clock[0])
    return clock


def silent(number: int) -> dict[int, str]:
    """As many workers, at addresses that don't answer."""
    return dict.fromkeys(range(number), "nowhere")


def test_a_chief_that_ends(tmp_path: Path) -> None:
    watcher = JobCompletionWatcher(tmp_path)
    assert not watcher.chief_has_ended()
    mark_task_started(tmp_path, "chief", 0)
    assert not watcher.chief_has_ended()
    mark_task_ended(str(tmp_path).encode(), "chief", 0)
    assert watcher.chief_has_ended()
    mark_task_started(tmp_path, "chief", 0)
    assert not watcher.chief_has_ended()
    mark_task_ended(tmp_path, "master", 0)
    assert watcher.chief_has_ended()


def test_a_file_of_an_earlier_run_counts_once_it_is_stale(tmp_path: Path, now: list[float]) -> None:
    mark_task_ended(tmp_path, "chief", 0)
    watcher = JobCompletionWatcher(tmp_path)
    assert not watcher.chief_has_ended()
    now[0] += job_completion.STALE_SECS - 1
    assert not watcher.chief_has_ended()
    now[0] += 1
    assert watcher.chief_has_ended()


def test_a_file_of_an_earlier_run_that_this_run_rewrites_counts_at_once(tmp_path: Path, now: list[float]) -> None:
    mark_task_ended(tmp_path, "chief", 0)
    watcher = JobCompletionWatcher(tmp_path)
    mark_task_started(tmp_path, "chief", 0)
    mark_task_ended(tmp_path, "chief", 0)
    assert watcher.chief_has_ended()


def test_a_parameter_server_waits_for_the_workers(tmp_path: Path, now: list[float]) -> None:
    watcher = JobCompletionWatcher(tmp_path)
    mark_task_ended(tmp_path, "worker", 1)
    assert not watcher.job_has_ended(silent(2))
    mark_task_ended(tmp_path, "chief", 0)
    assert not watcher.job_has_ended(silent(2))
    mark_task_ended(tmp_path, "worker", 0)
    assert watcher.job_has_ended(silent(2))


def test_a_parameter_server_waits_for_the_workers_ten_minutes_at_most(tmp_path: Path, now: list[float]) -> None:
    watcher = JobCompletionWatcher(tmp_path)
    now[0] += 5000
    mark_task_ended(tmp_path, "chief", 0)
    assert not watcher.job_has_ended(silent(1))
    now[0] += job_completion.WORKER_GRACE_SECS - 1
    assert not watcher.job_has_ended(silent(1))
    now[0] += 1
    assert watcher.job_has_ended(silent(1))


def test_a_parameter_server_goes_on_as_long_as_a_worker_answers(tmp_path: Path, now: list[float]) -> None:
    """Its data may last for hours longer than the chief's. Of one that is lost, ten minutes are left to restart it."""
    watcher = JobCompletionWatcher(tmp_path)
    mark_task_ended(tmp_path, "chief", 0)
    mark_task_ended(tmp_path, "worker", 0)
    with socket.create_server(("localhost", 0)) as ended, socket.create_server(("localhost", 0)) as training:
        workers = {i: f"localhost:{s.getsockname()[1]}" for i, s in enumerate((ended, training))} | {2: "nowhere"}
        for _ in range(10):
            now[0] += job_completion.WORKER_GRACE_SECS / 2
            assert not watcher.job_has_ended(workers)
        training.close()
        now[0] += job_completion.WORKER_GRACE_SECS - 1
        assert not watcher.job_has_ended(workers)
        # The first look that has found it closed begins the ten minutes.
        now[0] += job_completion.WORKER_GRACE_SECS
        assert watcher.job_has_ended(workers)


def test_workers_are_asked_once_a_minute(tmp_path: Path, now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(peer_liveness, "listens", lambda address: asked.append(address) or True)
    watcher = JobCompletionWatcher(tmp_path)
    workers = {0: "h0:1", 2: "h2:1"}
    assert not watcher.job_has_ended(workers)
    assert asked == []
    mark_task_ended(tmp_path, "worker", 0)
    mark_task_ended(tmp_path, "chief", 0)
    for _ in range(121):
        assert not watcher.job_has_ended(workers)
        now[0] += 1
    assert asked == ["h2:1"] * 3


def test_a_chief_that_restarts_restarts_the_ten_minutes(tmp_path: Path, now: list[float]) -> None:
    watcher = JobCompletionWatcher(tmp_path)
    mark_task_ended(tmp_path, "chief", 0)
    assert not watcher.job_has_ended(silent(1))
    now[0] += job_completion.WORKER_GRACE_SECS
    mark_task_started(tmp_path, "chief", 0)
    assert not watcher.job_has_ended(silent(1))
    mark_task_ended(tmp_path, "chief", 0)
    assert not watcher.job_has_ended(silent(1))


@pytest.mark.parametrize("model_dir", [None, mock.Mock(), "/nowhere/at/all"])
def test_a_model_dir_that_isn_t_there(model_dir: Any) -> None:
    mark_task_started(model_dir, "chief", 0)
    mark_task_ended(model_dir, "chief", 0)
    assert not JobCompletionWatcher(model_dir).chief_has_ended()


def test_a_model_dir_that_can_t_be_written_to_is_reported(tmp_path: Path, tf_log: Any) -> None:
    (tmp_path / "ended_tasks").write_text("")
    mark_task_ended(tmp_path, "chief", 0)
    assert any("Other tasks won't detect that this one has ended" in message for message in tf_log.messages)


def test_a_parameter_server_ends_with_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tf_log: Any) -> None:
    monkeypatch.setattr(server, "_POLL_SECS", 0.02)
    cluster = {"chief": ["localhost:1"], "ps": ["localhost:0"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "ps", "index": 0}}))
    forever = threading.Event()
    monkeypatch.setattr(server_lib, "Server", mock.Mock(return_value=mock.Mock(join=forever.wait)))
    config = estimator.RunConfig(model_dir=str(tmp_path))
    est = mock.Mock(spec=estimator.Estimator, config=config, model_dir=str(tmp_path))
    executor = estimator.TrainingExecutor(est, estimator.TrainSpec(lambda: None), None)
    ran = threading.Thread(target=executor.run, daemon=True)
    ran.start()
    time.sleep(0.2)
    assert ran.is_alive()
    mark_task_ended(tmp_path, "chief", 0)
    ran.join(60)
    assert not ran.is_alive()
    forever.set()
    assert (
        "The job has ended: its parameter server 0 also ends. See `python -m fastsup docs dropin#clusters`."
        in tf_log.messages
    )


def test_a_task_that_fails_hasn_t_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = {"chief": ["localhost:1"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "chief", "index": 0}}))
    est = mock.Mock(spec=estimator.Estimator, config=estimator.RunConfig(), model_dir=str(tmp_path))
    est.train.side_effect = tf.errors.AbortedError(None, None, "gone")
    watcher = JobCompletionWatcher(tmp_path)
    executor = estimator.TrainingExecutor(est, estimator.TrainSpec(lambda: None), None)
    with pytest.raises(tf.errors.AbortedError):
        executor.run()
    assert not watcher.chief_has_ended()
    est.train.side_effect = None
    executor.run()
    assert watcher.chief_has_ended()


def test_an_evaluator_s_sleep_is_over_when_the_chief_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = JobCompletionWatcher(tmp_path)
    slept: list[float] = []

    def sleep(secs: float) -> None:
        slept.append(secs)
        if len(slept) == 5:
            mark_task_ended(tmp_path, "chief", 0)

    monkeypatch.setattr(job_completion.time, "sleep", sleep)
    watcher.sleep(25)
    assert slept == [10, 10, 5]
    watcher.sleep(600)
    assert slept == [10, 10, 5, 10, 10]
    watcher.sleep(600)
    assert len(slept) == 5
    JobCompletionWatcher(None).sleep(600)
    assert slept[5:] == [600]


def test_an_evaluator_ends_when_training_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tf_log: Any) -> None:
    cluster = {"chief": ["localhost:1"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "evaluator", "index": 0}}))
    est = mock.Mock(spec=estimator.Estimator, config=estimator.RunConfig(), model_dir=str(tmp_path))
    paths = iter(["model.ckpt-10", "model.ckpt-20", "model.ckpt-25"])

    def latest() -> str:
        path = next(paths)
        if path == "model.ckpt-25":
            return path
        if path == "model.ckpt-20":
            mark_task_ended(tmp_path, "chief", 0)
        return path

    est.latest_checkpoint.side_effect = latest
    est.evaluate.side_effect = lambda checkpoint_path, **rest: {"global_step": int(checkpoint_path[-2:])}
    spec = estimator.EvalSpec(lambda: None, start_delay_secs=0, throttle_secs=0, throttle_steps=10)
    # The training ended after 25 of 100 steps. The throttle doesn't apply to the last checkpoint.
    executor = estimator.TrainingExecutor(est, estimator.TrainSpec(lambda: None, max_steps=100), spec)
    executor.run()
    evaluated = [call[1]["checkpoint_path"] for call in est.evaluate.call_args_list]
    assert evaluated == ["model.ckpt-10", "model.ckpt-20", "model.ckpt-25"]
    line = "Exiting evaluation, training has ended before max_steps=100. See `python -m fastsup docs dropin#clusters`."
    assert tf_log.messages[-1] == line


def test_a_look_costs_the_same_for_any_number_of_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No directory is listed and no file is read while the chief trains; afterwards no file of this run is read."""
    calls: list[str] = []
    for module, name in (
        (job_completion, "list_names"),
        (job_completion, "exists"),
        (job_completion.file_io, "read_file_to_string"),
    ):
        function = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *args, name=name, f=function: (calls.append(name), f(*args))[1])
    watcher = JobCompletionWatcher(tmp_path)
    for index in range(50):
        mark_task_ended(tmp_path, "worker", index)
    calls.clear()
    assert not watcher.job_has_ended(silent(50))
    assert calls == ["exists"] * 2
    mark_task_ended(tmp_path, "chief", 0)
    calls.clear()
    assert watcher.job_has_ended(silent(50))
    assert calls == ["exists"] * 2 + ["list_names"]


def test_workers_that_ended_in_an_earlier_run_are_waited_for(tmp_path: Path, now: list[float]) -> None:
    for role, index in (("chief", 0), ("worker", 0), ("worker", 1)):
        mark_task_ended(tmp_path, role, index)
    watcher = JobCompletionWatcher(tmp_path)
    mark_task_started(tmp_path, "chief", 0)
    assert not watcher.job_has_ended(silent(2))
    mark_task_ended(tmp_path, "chief", 0)
    mark_task_started(tmp_path, "worker", 0)
    mark_task_ended(tmp_path, "worker", 0)
    assert not watcher.job_has_ended(silent(2))
    mark_task_started(tmp_path, "worker", 1)
    assert not watcher.job_has_ended(silent(2))
    mark_task_ended(tmp_path, "worker", 1)
    assert watcher.job_has_ended(silent(2))


# An error of the file system isn't an answer.


class FailsOnce:
    """A function that raises an error of the file system, once it is told to."""

    def __init__(self, function: Any) -> None:
        self.function, self.fails = function, False

    def __call__(self, *args: Any) -> Any:
        if self.fails:
            self.fails = False
            raise tf.errors.ResourceExhaustedError(None, None, "Too many open files")
        return self.function(*args)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> dict[str, FailsOnce]:
    """The functions that look at files, each with a switch that makes its next call fail."""
    places = {"exists": job_completion, "list_names": job_completion, "read_file_to_string": job_completion.file_io}
    replaced = {name: FailsOnce(getattr(module, name)) for name, module in places.items()}
    for name, module in places.items():
        monkeypatch.setattr(module, name, replaced[name])
    return replaced


@pytest.mark.parametrize("name", ["exists", "list_names", "read_file_to_string"])
@pytest.mark.parametrize("moment", ["at the start", "later"])
def test_one_failing_look_doesnt_end_a_job(
    tmp_path: Path, now: list[float], failing: dict[str, FailsOnce], name: str, moment: str
) -> None:
    """The file is one of an earlier run, and the chief of this run is training."""
    mark_task_ended(tmp_path, "chief", 0)
    failing[name].fails = moment == "at the start"
    watcher = JobCompletionWatcher(tmp_path)
    failing[name].fails = failing[name].fails or moment == "later"
    assert not any(watcher.chief_has_ended() for _ in range(4))
    mark_task_started(tmp_path, "chief", 0)
    assert not watcher.chief_has_ended()
    mark_task_ended(tmp_path, "chief", 0)
    assert watcher.chief_has_ended()


def test_a_look_that_fails_for_a_while(tmp_path: Path, now: list[float], failing: dict[str, FailsOnce]) -> None:
    watcher = JobCompletionWatcher(tmp_path)
    mark_task_ended(tmp_path, "chief", 0)
    for _ in range(3):
        failing["exists"].fails = True
        assert not watcher.chief_has_ended()
    assert watcher.chief_has_ended()
