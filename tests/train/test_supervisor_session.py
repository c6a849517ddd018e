"""What a Supervisor's session goes through: how it is prepared, how it ends, and what is raised."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest
import tensorflow as tf

import fastsup
from fastsup import train

v1 = tf.compat.v1


@pytest.fixture
def value(graph: Any) -> Any:
    return tf.constant(1.0)


def test_prepared_and_stopped(impl: Any, value: Any, tmp_path: Any) -> None:
    sv = impl.train.Supervisor(logdir=str(tmp_path))
    session = sv.prepare_or_wait_for_session("")
    for _ in range(10):
        assert session.run(value) == 1.0
    session.close()
    sv.stop()
    assert sv.should_stop()


def test_managed(impl: Any, value: Any, tmp_path: Any) -> None:
    sv = impl.train.Supervisor(logdir=str(tmp_path))
    with sv.managed_session("") as session:
        assert isinstance(session, impl.Session)
        assert session.run(value) == 1.0
        assert not sv.should_stop()
    assert sv.should_stop()
    with pytest.raises(RuntimeError, match=r"^Attempted to use a closed Session\.$"):
        session.run(value)


def test_classic_loop(graph: Any, counting_step: Any, tmp_path: Any) -> None:
    """Its steps run through one plan, and each is counted."""
    step = counting_step()
    sv = train.Supervisor(logdir=str(tmp_path))
    with sv.managed_session() as session:
        assert type(session) is fastsup.Session
        steps = 0
        while not sv.should_stop():
            session.run(step.op)
            steps += 1
            if steps == 1_000:
                sv.request_stop()
        assert session.run(step.read) == 1_000
        assert session.plan_cache_info().hits >= 999


def test_config(impl: Any, graph: Any) -> None:
    with tf.device("/cpu:1"):
        value = tf.constant([1.0])
    sv = impl.train.Supervisor()
    with sv.managed_session(config=v1.ConfigProto(device_count={"CPU": 2})) as session:
        assert session.run(value) == [1.0]
        assert len(session.list_devices()) == 2


# How it ends.


def test_error_in_the_block(impl: Any, value: Any, tmp_path: Any, tf_log: Any) -> None:
    sv = impl.train.Supervisor(logdir=str(tmp_path))
    error, reached = RuntimeError("failing here"), []
    with pytest.raises(RuntimeError) as raised:
        with sv.managed_session() as session:
            for number in range(10):
                reached.append(number)
                if number == 1:
                    raise error
                session.run(value)
    assert raised.value is error
    assert reached == [0, 1]
    assert sv.should_stop()
    assert session._closed
    assert f"Error reported to Coordinator: {RuntimeError}, failing here" in tf_log.messages


def test_end_of_the_input_in_the_block(impl: Any, value: Any, tmp_path: Any) -> None:
    sv = impl.train.Supervisor(logdir=str(tmp_path))
    with sv.managed_session() as session:
        raise tf.errors.OutOfRangeError(None, None, "all done")
    assert sv.should_stop()
    assert session._closed


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_interrupted(impl: Any, value: Any, tmp_path: Any, events: Any, error: type[BaseException]) -> None:
    sv = impl.train.Supervisor(logdir=str(tmp_path))
    with pytest.raises(error):
        with sv.managed_session() as session:
            raise error
    assert sv.should_stop()
    assert session._closed
    assert events(tmp_path)[-1] == "0:STOP"


def test_error_of_the_runtime(impl: Any, graph: Any) -> None:
    divided = tf.constant(1) // v1.placeholder_with_default(0, [])
    sv = impl.train.Supervisor()
    with pytest.raises(tf.errors.InvalidArgumentError, match="by zero"):
        with sv.managed_session() as session:
            session.run(divided)


def test_stopped_in_the_block(impl: Any, value: Any, tmp_path: Any, events: Any) -> None:
    sv = impl.train.Supervisor(logdir=str(tmp_path))
    with sv.managed_session(close_summary_writer=False) as session:
        sv.stop()
        assert sv.should_stop()
        # It stops the threads, not the session.
        assert session.run(value) == 1.0
    assert events(tmp_path)[-1] == "0:STOP"


def test_stopped_twice(value: Any, tmp_path: Any, events: Any) -> None:
    """Without a complaint (TensorFlow warns of the closed writer), and with one STOP."""
    sv = train.Supervisor(logdir=str(tmp_path))
    with sv.managed_session():
        sv.stop()
    sv.stop()
    assert [text for text in events(tmp_path) if text.endswith("STOP")] == ["0:STOP"]


def test_error_after_the_stop(impl: Any, value: Any) -> None:
    sv = impl.train.Supervisor()
    with pytest.raises(KeyError, match="mine"):
        with sv.managed_session() as session:
            sv.stop()
            raise KeyError("mine")
    assert session._closed


def test_error_while_preparing(impl: Any, graph: Any, tmp_path: Any, events: Any) -> None:
    v1.get_variable("w", initializer=1.0)

    def init_fn(session: Any) -> None:
        raise KeyError("no such part")

    sv = impl.train.Supervisor(logdir=str(tmp_path), init_fn=init_fn)
    with pytest.raises(KeyError, match="no such part"):
        with sv.managed_session():
            pytest.fail("There is no session.")
    assert sv.should_stop()
    assert events(tmp_path) == ["0:STOP"]


def init_fn_out_of_range(session: Any) -> None:
    raise tf.errors.OutOfRangeError(None, None, "read less bytes than requested")


def test_damaged_file_while_preparing(graph: Any) -> None:
    """It's the error that a checkpoint of half its length raises, and not the end of any input."""
    v1.get_variable("w", initializer=1.0)
    sv = train.Supervisor(init_fn=init_fn_out_of_range)
    with pytest.raises(tf.errors.OutOfRangeError, match="read less bytes"):
        with sv.managed_session():
            pytest.fail("There is no session.")
    assert sv.should_stop()


def test_damaged_file_while_preparing_in_tensorflow(both: Any, graph: Any) -> None:
    v1.get_variable("w", initializer=1.0)
    sv = both.tensorflow.train.Supervisor(init_fn=init_fn_out_of_range)
    with pytest.raises(RuntimeError, match="generator didn't yield"):
        with sv.managed_session():
            pytest.fail("There is no session.")


def test_session_that_could_not_be_served(
    graph: Any, counting_step: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error after the session was made: it's closed, its threads end, and another one can be made."""
    counting_step()
    threads = set(threading.enumerate())
    sv = train.Supervisor(logdir=str(tmp_path), save_model_secs=0.01)
    made = []
    prepare = train.SessionManager.prepare_session
    monkeypatch.setattr(
        train.SessionManager,
        "prepare_session",
        lambda self, *args, **more: made.append(prepare(self, *args, **more)) or made[-1],
    )

    def no_queues(session: Any) -> Any:
        raise tf.errors.UnavailableError(None, None, "no queues")

    monkeypatch.setattr(sv, "start_queue_runners", no_queues)
    with pytest.raises(tf.errors.UnavailableError, match="no queues"):
        sv.prepare_or_wait_for_session()
    assert made[0]._closed
    assert set(threading.enumerate()) <= threads
    with pytest.raises(tf.errors.UnavailableError, match="no queues"):
        with sv.managed_session():
            pytest.fail("There is no session.")
    assert made[1]._closed
    monkeypatch.undo()
    with sv.managed_session() as session:
        assert not sv.should_stop()
        assert not session._closed


def test_writer_that_fails_to_close(graph: Any, tmp_path: Any, tf_log: Any) -> None:
    """It's said where it's the only error, and doesn't hide another."""
    tf.constant(1.0)

    class Failing(v1.summary.FileWriter):
        def close(self) -> None:
            super().close()
            raise OSError("no space left")

    def run(error: Exception | None) -> None:
        sv = train.Supervisor(graph, summary_writer=Failing(str(tmp_path)))
        with sv.managed_session():
            if error is not None:
                raise error

    with pytest.raises(OSError, match="no space left"):
        run(None)
    graph._unsafe_unfinalize()
    with pytest.raises(KeyError, match="mine"):
        run(KeyError("mine"))
    assert "The summary writer could not be closed: no space left" in tf_log.messages


def test_directory_as_a_path_object(graph: Any, tmp_path: Any) -> None:
    """TensorFlow's fails as it writes the graph."""
    train.get_or_create_global_step()
    sv = train.Supervisor(logdir=tmp_path / "new")
    with sv.managed_session():
        pass
    assert sv.save_path == str(tmp_path / "new" / "model.ckpt")
    assert {"graph.pbtxt", "model.ckpt-0.index"} <= set(os.listdir(tmp_path / "new"))
