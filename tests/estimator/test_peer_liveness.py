"""The liveness of the tasks that train: how it is checked, and when their silence is an error."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import tensorflow as tf
from tensorflow.python.training import server_lib

from fastsup import estimator as est
from fastsup.cluster import peer_liveness, server
from fastsup.cluster.job_completion import JobCompletionWatcher
from fastsup.cluster.peer_liveness import PeerLiveness, peer_liveness_of


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock, in seconds."""
    clock = [1000.0]
    monkeypatch.setattr(peer_liveness.time, "monotonic", lambda: clock[0])
    return clock


@pytest.fixture
def answering() -> Iterator[socket.socket]:
    with socket.create_server(("localhost", 0)) as listening:
        yield listening


@pytest.fixture
def closed() -> str:
    """An address without a listener: bound, so that no other process can listen there."""
    with socket.socket() as bound:
        bound.bind(("localhost", 0))
        yield f"localhost:{bound.getsockname()[1]}"


def test_silence_for_the_timeout_is_an_error(closed: str, now: list[float]) -> None:
    liveness = PeerLiveness([closed], timeout_secs=100)
    liveness.check()
    now[0] += 99
    liveness.check()
    now[0] += 26
    with pytest.raises(tf.errors.DeadlineExceededError, match="No chief or worker has answered for 125 s") as caught:
        liveness.check()
    assert closed in str(caught.value)
    assert "session_creation_timeout_secs=100" in str(caught.value)


def test_one_that_answers_is_enough(closed: str, answering: socket.socket, now: list[float]) -> None:
    liveness = PeerLiveness([closed, f"localhost:{answering.getsockname()[1]}"], timeout_secs=100)
    for _ in range(5):
        liveness.check()
        now[0] += 99


def test_recorded_life_restarts_the_timeout(closed: str, now: list[float]) -> None:
    liveness = PeerLiveness([closed], timeout_secs=100)
    liveness.check()
    for _ in range(3):
        now[0] += 99
        liveness.record_alive()
        liveness.check()
    now[0] += 100
    with pytest.raises(tf.errors.DeadlineExceededError):
        liveness.check()


def test_the_peers_are_checked_once_a_minute(now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Any] = []

    def refuse(*arguments: Any) -> Any:
        looks.append(arguments)
        raise ConnectionRefusedError

    monkeypatch.setattr(peer_liveness.socket, "create_connection", refuse)
    liveness = PeerLiveness(["[::1]:80"], timeout_secs=7200)
    for _ in range(120):
        liveness.check()
        now[0] += 1
    assert looks == [(("::1", 80), 1.0)] * 2


CLUSTER = {"chief": ["h0:1"], "worker": ["h1:1", "h2:1"], "ps": ["h3:1"]}


@pytest.mark.parametrize(
    ("tf_config", "addresses"),
    [
        ({"cluster": CLUSTER, "task": {"type": "ps", "index": 0}}, ["h0:1", "h1:1", "h2:1"]),
        ({"cluster": CLUSTER, "task": {"type": "evaluator", "index": 0}}, ["h0:1", "h1:1", "h2:1"]),
        ({"cluster": {"master": ["m:1"], "ps": ["p:1"]}, "task": {"type": "ps", "index": 0}}, ["m:1"]),
        ({"cluster": CLUSTER, "task": {"type": "ps", "index": 0}, "environment": "google"}, []),
        ({}, []),
    ],
)
def test_addresses_of_the_peers(set_tf_config: Callable[..., None], tf_config: Any, addresses: list[str]) -> None:
    set_tf_config(tf_config)
    found = peer_liveness_of(est.RunConfig(session_creation_timeout_secs=5))
    assert found.addresses == addresses
    assert found.timeout_secs == 5


def test_a_parameter_server_of_a_lost_job_fails(
    tmp_path: Path, closed: str, monkeypatch: pytest.MonkeyPatch, set_tf_config: Callable[..., None]
) -> None:
    monkeypatch.setattr(server, "_POLL_SECS", 0.02)
    cluster = {"chief": [closed], "ps": ["localhost:0"]}
    set_tf_config(json.dumps({"cluster": cluster, "task": {"type": "ps", "index": 0}}))
    config = est.RunConfig(model_dir=str(tmp_path), session_creation_timeout_secs=0.1)
    forever = threading.Event()
    serving = mock.Mock(spec=server_lib.Server, join=forever.wait)
    with pytest.raises(tf.errors.DeadlineExceededError, match="No chief or worker has answered"):
        server.serve_until_job_ends(serving, config, JobCompletionWatcher(tmp_path))
    forever.set()


def test_an_evaluator_of_a_lost_job_fails(tmp_path: Path, closed: str, set_tf_config: Callable[..., None]) -> None:
    set_tf_config({"cluster": {"chief": [closed], "ps": ["h:1"]}, "task": {"type": "evaluator", "index": 0}})
    config = est.RunConfig(session_creation_timeout_secs=0.2)
    estimator = mock.Mock(spec=est.Estimator, config=config, model_dir=str(tmp_path))
    estimator.latest_checkpoint.return_value = None
    spec = est.EvalSpec(lambda: None, start_delay_secs=0, throttle_secs=0)
    executor = est.TrainingExecutor(estimator, est.TrainSpec(lambda: None, max_steps=10), spec)
    with pytest.raises(tf.errors.DeadlineExceededError, match="No chief or worker has answered"):
        executor.run()


def test_peers_of_machines_that_are_gone_are_asked_at_once(now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes the whole timeout. The one that answers is the first to be asked the next time."""
    asked: list[int] = []
    # Those of a group wait here until all of them are asked. It breaks where they are asked one after the other.
    group = threading.Barrier(32)

    def connect(address: tuple[str, int], timeout: float) -> Any:
        asked.append(address[1])
        if address[1] != 1 and not has_answered:
            group.wait(30)
        if address[1] != 60:
            raise TimeoutError
        return socket.socket()

    has_answered = False
    monkeypatch.setattr(peer_liveness.socket, "create_connection", connect)
    liveness = PeerLiveness([f"gone:{port}" for port in range(1, 101)], timeout_secs=100)
    liveness.check()
    # The chief alone; then two groups.
    assert sorted(asked) == list(range(1, 66))
    asked.clear()
    has_answered = True
    now[0] += 50
    liveness.check()
    assert asked == [60]
