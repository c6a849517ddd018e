"""A chief and those that wait for it, over a server in this process."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

v1 = tf.compat.v1


@pytest.fixture(scope="module")
def server() -> Any:
    """A server on a free port of this machine."""
    return v1.train.Server.create_local_server()


@pytest.fixture
def replica(impl: Any, graph: Any, request: Any) -> Callable[..., Any]:
    """Makes a replica of one program, each with its own graph and the variables on the server."""
    # The server, and with it the variables, outlive the test: each has its own.
    name = re.sub(r"\W", "_", request.node.name)

    def make(is_chief: bool, initial: float = 1.0, **arguments: Any) -> Any:
        with tf.Graph().as_default(), tf.device("/job:localhost/task:0"):
            shared = v1.get_variable(name, initializer=initial)
            # Its value is that of the shared variable when this replica began.
            local = v1.Variable(
                shared.read_value(),
                trainable=False, collections=[v1.GraphKeys.LOCAL_VARIABLES], name=f"local_{is_chief}_{name}",
            )  # fmt: skip
            added = v1.assign_add(shared, 1.0)
            ready = v1.report_uninitialized_variables(v1.global_variables())
            arguments = {"ready_for_local_init_op": ready, "recovery_wait_secs": 0.1, **arguments}
            sv = impl.train.Supervisor(is_chief=is_chief, **arguments)
        return SimpleNamespace(sv=sv, shared=shared, local=local, added=added)

    return make


def test_ready_for_local_init(impl: Any, server: Any, replica: Any) -> None:
    chief, worker = replica(True), replica(False)
    with chief.sv.managed_session(server.target) as first, worker.sv.managed_session(server.target) as second:
        assert isinstance(second, impl.Session)
        assert first.run(chief.local) == 1.0
        assert second.run(worker.added) == 2.0
        assert second.run(worker.local) == 1.0
        assert first.run(chief.shared) == 2.0


def test_ready_for_local_init_from_a_checkpoint(impl: Any, server: Any, replica: Any, tmp_path: Any) -> None:
    before = replica(True, initial=10.0, logdir=str(tmp_path))
    with before.sv.managed_session(server.target, start_standard_services=False) as session:
        before.sv.saver.save(session, before.sv.save_path)
        session.run(before.added)
    chief, worker = replica(True, logdir=str(tmp_path), save_model_secs=0), replica(False, logdir=str(tmp_path))
    assert worker.sv.save_path is None
    with chief.sv.managed_session(server.target) as first, worker.sv.managed_session(server.target) as second:
        assert first.run(chief.local) == 10.0
        assert second.run(worker.added) == 11.0
        assert second.run(worker.local) == 10.0
        assert first.run(chief.shared) == 11.0


def test_worker_waits_for_the_chief(impl: Any, server: Any, replica: Any, tf_log: Any, wait_for: Any) -> None:
    chief, worker = replica(True), replica(False)
    seen: list[Any] = []

    def work() -> None:
        # Its own thread has no default graph, and executes eagerly under TensorFlow 2 behaviour.
        with worker.sv.session_manager._graph.as_default(), worker.sv.managed_session(server.target) as session:
            seen.append(session.run(worker.added))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        wait_for(lambda: any(text.startswith("Waiting for model to be ready.") for text in tf_log.messages))
        assert seen == []
    finally:
        with chief.sv.managed_session(server.target):
            thread.join(60)
    assert not thread.is_alive()
    assert seen == [2.0]


def test_chief_that_never_comes(impl: Any, server: Any, replica: Any) -> None:
    worker = replica(False)
    with pytest.raises(tf.errors.DeadlineExceededError, match="Session was not ready after waiting 0 secs"):
        worker.sv.prepare_or_wait_for_session(server.target, max_wait_secs=0)
    with pytest.raises(tf.errors.DeadlineExceededError, match="Session was not ready after waiting 1 secs"):
        worker.sv.prepare_or_wait_for_session(server.target, max_wait_secs=1)
    assert not worker.sv.should_stop()
    worker.sv.stop()


def test_chief_restarts_while_a_worker_goes_on(impl: Any, server: Any, replica: Any, tmp_path: Any) -> None:
    worker = replica(False)
    chief = replica(True, logdir=str(tmp_path), save_model_secs=0, save_summaries_secs=0)
    first = chief.sv.prepare_or_wait_for_session(server.target)
    with worker.sv.managed_session(server.target) as second:
        second.run(worker.added)
        chief.sv.saver.save(first, chief.sv.save_path)
        second.run(worker.added)
        chief.sv.stop()
        first.close()
        again = replica(True, logdir=str(tmp_path), save_model_secs=0, save_summaries_secs=0)
        with again.sv.managed_session(server.target) as third:
            # Restored, for everybody.
            assert third.run(again.shared) == 2.0
            assert second.run(worker.added) == 3.0


def test_waits_for_a_checkpoint(
    impl: Any, server: Any, replica: Any, tmp_path: Any, tf_log: Any, wait_for: Any
) -> None:
    saved = replica(True, initial=5.0, logdir=str(tmp_path / "saved"))
    with saved.sv.managed_session(server.target, start_standard_services=False) as session:
        path = saved.sv.saver.save(session, saved.sv.save_path)
    waiting = replica(True, logdir=str(tmp_path / "waiting"))

    def bring() -> None:
        wait_for(lambda: any(text.startswith("Waiting for checkpoint") for text in tf_log.messages))
        v1.train.update_checkpoint_state(str(tmp_path / "waiting"), path)

    thread = threading.Thread(target=bring, daemon=True)
    thread.start()
    session = waiting.sv.prepare_or_wait_for_session(
        server.target, wait_for_checkpoint=True, max_wait_secs=60, start_standard_services=False
    )
    assert session.run(waiting.shared) == 5.0
    waiting.sv.stop()
    session.close()
    thread.join(60)


def test_only_the_chief_writes(impl: Any, graph: Any, tmp_path: Any) -> None:
    computed = v1.summary.scalar("c", tf.constant(1.0))
    sv = impl.train.Supervisor(is_chief=False, logdir=str(tmp_path / "new"))
    with sv.managed_session() as session:
        with pytest.raises(RuntimeError, match=r"^Writing a summary requires a summary writer\.$"):
            sv.summary_computed(session, session.run(computed))
        text = (
            r"^Only chief supervisor can start standard services\. Because only chief supervisors can write events\.$"
        )
        with pytest.raises(RuntimeError, match=text):
            sv.start_standard_services(session)
    assert not (tmp_path / "new").exists()


def test_variables_without_device(impl: Any, tmp_path: Any) -> None:
    def make(is_chief: bool) -> None:
        impl.train.Supervisor(is_chief=is_chief, logdir=str(tmp_path / f"chief {is_chief}")).stop()

    with tf.Graph().as_default():
        v1.Variable([1.0], name="v", use_resource=False)
        with pytest.raises(ValueError, match=r"^When using replicas, all Variables must have their device set: name: "):
            make(is_chief=False)
    with tf.Graph().as_default(), tf.device("/job:ps"):
        v1.Variable([1.0], name="v", use_resource=False)
        make(is_chief=False)
    with tf.Graph().as_default():
        v1.Variable([1.0], name="v", use_resource=False)
        make(is_chief=True)
    assert not (tmp_path / "chief False").exists()
