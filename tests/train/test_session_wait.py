"""Waits of a session: for the servers of a cluster, and the pauses between the looks of many workers."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import pytest
import tensorflow as tf

v1 = tf.compat.v1


def free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


def test_a_wait_for_a_server_that_is_not_up_ends(graph: Any, tf_log: Any) -> None:
    """Nothing in TensorFlow ends that wait: not its timeouts, and not `max_wait_secs`."""
    from fastsup import train

    v = v1.get_variable("v", initializer=tf.constant(1.0))
    cluster = tf.train.ClusterSpec({job: [f"127.0.0.1:{free_port()}"] for job in ("ps", "worker")})
    worker = v1.train.Server(cluster, "worker", 0)
    manager = train.SessionManager(ready_op=v1.report_uninitialized_variables(), recovery_wait_secs=0.2)
    started = time.time()  # The clock that the wait goes by, which a machine may set.
    with pytest.raises(tf.errors.DeadlineExceededError) as raised:
        manager.wait_for_session(worker.target, max_wait_secs=1)
    assert 1 <= time.time() - started < 10
    assert raised.value.message == (
        "Session was not ready after waiting 1 secs. Waited for an answer from every task of the cluster of "
        f"{worker.target}, one of which isn't up or can't be reached"
    )
    assert any("Waiting for an answer from every task of the cluster" in message for message in tf_log.messages)
    ps = v1.train.Server(cluster, "ps", 0)
    with v1.Session(worker.target) as chief:
        chief.run(v.initializer)
        with manager.wait_for_session(worker.target, max_wait_secs=60) as session:
            assert session.run(v) == 1.0
    del ps


@pytest.mark.slow
@pytest.mark.parametrize("filters", [[], ["/job:ps", "/job:worker/task:0"]])
def test_a_server_that_is_not_up_is_named(graph: Any, tf_log: Any, monkeypatch: Any, filters: list[str]) -> None:
    from fastsup import train

    ports = {job: free_port() for job in ("ps", "worker", "chief")}
    cluster = {job: [f"127.0.0.1:{port}"] for job, port in ports.items()}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}}))
    worker = v1.train.Server(tf.train.ClusterSpec(cluster), "worker", 0)
    manager = train.SessionManager(ready_op=v1.report_uninitialized_variables(), recovery_wait_secs=0.2)
    with pytest.raises(tf.errors.DeadlineExceededError) as raised:
        manager.wait_for_session(worker.target, v1.ConfigProto(device_filters=filters), max_wait_secs=1)
    silent = [f"ps 0 at 127.0.0.1:{ports['ps']}"] + ([] if filters else [f"chief 0 at 127.0.0.1:{ports['chief']}"])
    text = raised.value.message.partition("can't be reached: ")[2]
    assert sorted(text.split(", ")) == sorted(silent)
    assert any(silent[0] in message for message in tf_log.messages)
    # The wait in TensorFlow's runtime ends when they are there.
    others = [v1.train.Server(tf.train.ClusterSpec(cluster), job, 0) for job in ("ps", "chief")]
    manager.wait_for_session(worker.target, max_wait_secs=60).close()
    del others


def test_a_chief_s_wait_for_a_server_that_is_not_up_ends(graph: Any, tmp_path: Any) -> None:
    from fastsup import train

    v1.train.get_or_create_global_step()
    cluster = tf.train.ClusterSpec({job: [f"127.0.0.1:{free_port()}"] for job in ("ps", "chief")})
    chief = v1.train.Server(cluster, "chief", 0)
    started = time.time()
    with pytest.raises(tf.errors.DeadlineExceededError, match="an answer from every task of the cluster of"):
        train.MonitoredTrainingSession(chief.target, checkpoint_dir=str(tmp_path), max_wait_secs=1)
    assert 1 <= time.time() - started < 10
    alone = v1.ConfigProto(device_filters=["/job:chief"])
    with train.MonitoredTrainingSession(chief.target, checkpoint_dir=str(tmp_path), config=alone, max_wait_secs=60):
        pass  # It needs no parameter server.
    ps = v1.train.Server(cluster, "ps", 0)
    with train.MonitoredTrainingSession(chief.target, checkpoint_dir=str(tmp_path), max_wait_secs=60):
        pass
    del ps


@pytest.mark.parametrize(
    ("waited", "longest", "pause"),
    [(0, 30, 0.5), (2, 30, 0.5), (40, 30, 10), (1000, 30, 30), (40, 0.1, 0.1), (40, -1, 0)],
)
def test_pauses(waited: float, longest: float, pause: float) -> None:
    from fastsup.train.session.session_manager import pause_before_look

    assert pause_before_look(waited, longest) == pause


def test_a_thousand_workers_dont_look_at_once() -> None:
    from fastsup.train.session.session_manager import pause_before_look

    pauses = [pause_before_look(0, 30, workers=1000) for _ in range(200)]
    assert 10 <= min(pauses) < 15
    assert 25 < max(pauses) <= 30
    assert {pause_before_look(0, 30, workers=25) for _ in range(10)} == {0.5}
    assert pause_before_look(0, 1, workers=1000) == 1


@pytest.mark.parametrize(
    ("tf_config", "workers"),
    [
        ("", 1),
        ('{"cluster": {"ps": ["a:1"]}}', 1),
        ('{"cluster": {"worker": ["a:1", "b:1"]}}', 2),
        ('{"cluster": []}', 1),
    ],
)
def test_the_number_of_workers(monkeypatch: pytest.MonkeyPatch, tf_config: str, workers: int) -> None:
    from fastsup.train.session.session_manager import number_of_workers

    monkeypatch.setenv("TF_CONFIG", tf_config)
    assert number_of_workers() == workers
