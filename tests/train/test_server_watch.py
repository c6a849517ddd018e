"""The thread that watches the tasks of a cluster leaves alone what doesn't wait for a silent one."""

from __future__ import annotations

import gc
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from fastsup import train
from fastsup.train.session import server_watch

v1 = tf.compat.v1
NAME = "watch over the servers"


# A silent task is looked at so often before what waits for it is ended.
LOOKS = 4


class SilentProbe:
    """Stands for the question to the tasks: one doesn't answer."""

    made = looks = 0
    # Set when the task has been silent for three times the time that it has to answer.
    silent_for_long: threading.Event

    def __init__(self, *_: Any) -> None:
        SilentProbe.made += 1

    def has_returned(self, timeout_secs: float) -> bool:
        time.sleep(timeout_secs)
        SilentProbe.looks += 1
        if SilentProbe.looks == 3 * LOOKS:
            self.silent_for_long.set()
        return False


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> type[SilentProbe]:
    SilentProbe.made = SilentProbe.looks = 0
    SilentProbe.silent_for_long = threading.Event()
    monkeypatch.setattr(server_watch, "probe_servers", SilentProbe)
    for name, secs in (("STILL_SECS", 0.2), ("ANSWER_SECS", LOOKS * 0.05), ("_POLL_SECS", 0.05)):
        monkeypatch.setattr(server_watch, name, secs)
    return SilentProbe


@pytest.fixture(scope="module")
def target() -> Any:
    server = v1.train.Server.create_local_server()
    yield server.target
    del server  # Until here it is needed.


def watches() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == NAME]


def assert_the_watch_ends() -> None:
    deadline = time.monotonic() + 10
    while watches() and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.05)
    assert watches() == []


def test_what_happens_between_steps_is_no_wait(
    silent: Any, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an evaluation of some minutes is: the session goes on, and its last checkpoint is saved."""
    # A step, or a save, that a busy machine holds up is a wait. It must not be ended here.
    monkeypatch.setattr(server_watch, "ANSWER_SECS", 60)
    with tf.Graph().as_default():
        step = v1.assign_add(v1.train.get_or_create_global_step(), 1)
        other = tf.constant(1.0)
        with train.MonitoredTrainingSession(target, checkpoint_dir=str(tmp_path)) as session:
            session.run(step)
            made, longest = silent.made, 0.0
            time.sleep(1.0)
            until = time.monotonic() + 0.6
            while time.monotonic() < until:
                started = time.monotonic()
                session.raw_session().run(other)
                longest = max(longest, time.monotonic() - started)
            # The tasks are asked where four looks, in 0.15 s at least, find the same run.
            assert silent.made == made or longest > 0.1
            assert session.run(step) == 2
    assert train.latest_intact_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-2")


def waiting_step() -> tuple[Any, Any]:
    """A step that waits until something is put into a queue, and what puts it there."""
    queue = v1.FIFOQueue(1, tf.int64, [[]])
    return v1.assign_add(v1.train.get_or_create_global_step(), queue.dequeue()), queue.enqueue(tf.constant(1, tf.int64))


def test_a_step_that_needs_no_silent_task_goes_on(silent: Any, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The silent one is a worker that has ended: this process has no connection to it."""
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": ["localhost:1", "localhost:2"]}}))
    with tf.Graph().as_default():
        step, put = waiting_step()
        with train.MonitoredTrainingSession(target) as session:
            raw = session.raw_session()

            def put_later() -> None:
                silent.silent_for_long.wait(60)
                raw.run(put)

            thread = threading.Thread(target=put_later)
            thread.start()
            try:
                assert session.run(step) == 1
            finally:
                silent.silent_for_long.set()
                thread.join()
    assert silent.looks >= 3 * LOOKS
    # The question that wasn't answered is asked again.
    assert silent.made == 1


def test_a_step_whose_tasks_are_not_known_is_ended(silent: Any, target: str, tf_log: Any) -> None:
    with tf.Graph().as_default():
        step, _ = waiting_step()
        with pytest.raises(
            tf.errors.UnavailableError, match=r"No step has finished for 0\.2 s, and a task of the cluster"
        ):
            with train.SingularMonitoredSession(master=target) as session:
                session.run(step)
    assert any("Cancelling the operations that wait for it." in message for message in tf_log.messages)


def test_the_thread_ends_with_the_session(silent: Any, target: str) -> None:
    with tf.Graph().as_default():
        v1.train.get_or_create_global_step()
        with train.MonitoredTrainingSession(target):
            assert len(watches()) == 1
    assert_the_watch_ends()


def test_it_does_not_keep_a_session_alive(silent: Any, target: str) -> None:
    with tf.Graph().as_default():
        v1.train.get_or_create_global_step()
        session: Any = train.MonitoredTrainingSession(target)
        assert len(watches()) == 1
        del session
        assert_the_watch_ends()


def test_without_a_cluster_there_is_no_thread(silent: Any) -> None:
    with tf.Graph().as_default():
        v1.train.get_or_create_global_step()
        with train.MonitoredTrainingSession():
            assert watches() == []
