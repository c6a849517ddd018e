"""SessionManager: preparing, recovering and waiting for a session."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.platform import tf_logging

v1 = tf.compat.v1


def variable(name: str = "v", value: float = 1.0, local: bool = False) -> Any:
    collections = [v1.GraphKeys.LOCAL_VARIABLES if local else v1.GraphKeys.GLOBAL_VARIABLES]
    return v1.get_variable(name, initializer=tf.constant(value), collections=collections, trainable=not local)


def is_initialised(session: Any, of: Any) -> bool:
    return bool(session.run(v1.is_variable_initialized(of)))


def saved(folder: Any, name: str = "model.ckpt", step: int = 5, **values: float) -> str:
    """Saves variables with these values, and tells the path."""
    with tf.Graph().as_default(), v1.Session() as session:
        for key, value in values.items():
            variable(key, value)
        session.run(v1.global_variables_initializer())
        return str(v1.train.Saver().save(session, os.path.join(str(folder), name), step))


@pytest.fixture
def empty_path(tmp_path: Any) -> str:
    path = tmp_path / "nothing yet"
    path.mkdir()
    return str(path)


# Preparing.


def test_initialises_with_an_op(impl: Any, graph: Any) -> None:
    v = variable()
    manager = impl.train.SessionManager(ready_op=v1.report_uninitialized_variables())
    with manager.prepare_session("", init_op=v1.global_variables_initializer()) as session:
        assert session.run(v) == 1.0
        assert session.graph is graph


def test_initialises_with_feeds(impl: Any, graph: Any) -> None:
    x = v1.placeholder(tf.float32, [])
    v = v1.get_variable("v", initializer=x)
    manager = impl.train.SessionManager(ready_op=v1.report_uninitialized_variables())
    with manager.prepare_session("", init_op=v.initializer, init_feed_dict={x: 3.0}) as session:
        assert session.run(v) == 3.0


def test_initialises_with_a_function_after_the_op(impl: Any, graph: Any) -> None:
    v = variable()
    double = v1.assign(v, v * 2)
    manager = impl.train.SessionManager(ready_op=v1.report_uninitialized_variables())
    seen = []

    def init_fn(session: Any) -> None:
        seen.append(session)
        session.run(double)

    with manager.prepare_session("", init_op=v.initializer, init_fn=init_fn) as session:
        assert session.run(v) == 2.0
        assert seen == [session]
    with manager.prepare_session("", init_fn=lambda session: session.run(v.initializer)) as session:
        assert session.run(v) == 1.0


def test_local_init_op_runs_after_all_else(impl: Any, graph: Any) -> None:
    v = variable()
    w = v1.get_variable("w", initializer=lambda: v + 10.0, collections=[v1.GraphKeys.LOCAL_VARIABLES], trainable=False)
    manager = impl.train.SessionManager(
        local_init_op=w.initializer,
        ready_for_local_init_op=v1.report_uninitialized_variables(v1.global_variables()),
        ready_op=v1.report_uninitialized_variables(),
    )
    with manager.prepare_session("", init_op=v.initializer) as session:
        assert session.run(w) == 11.0


def test_local_init_op_gets_its_feeds_and_options(impl: Any, graph: Any) -> None:
    x = v1.placeholder(tf.float32, [])
    w = v1.get_variable("w", initializer=x, collections=[v1.GraphKeys.LOCAL_VARIABLES], trainable=False)
    manager = impl.train.SessionManager(
        local_init_op=w.initializer,
        local_init_feed_dict={x: 4.0},
        local_init_run_options=v1.RunOptions(timeout_in_ms=60_000),
        ready_op=v1.report_uninitialized_variables(v1.local_variables()),
    )
    with manager.prepare_session("") as session:
        assert session.run(w) == 4.0


def raised_by(call: Callable[[], Any], error: type[BaseException] = RuntimeError) -> str:
    with pytest.raises(error) as raised:
        call()
    assert raised.type is error
    return str(raised.value)


def test_nothing_to_initialise_with(impl: Any, graph: Any) -> None:
    variable()
    manager = impl.train.SessionManager(ready_op=v1.report_uninitialized_variables())
    assert raised_by(lambda: manager.prepare_session("")) == (
        "Model is not initialized and no init_op or init_fn or local_init_op was given"
    )


def test_what_says_that_the_model_is_not_ready(impl: Any, graph: Any) -> None:
    v, w = variable("v"), variable("w")
    ready = v1.report_uninitialized_variables()
    manager = impl.train.SessionManager(ready_op=ready)
    text = raised_by(lambda: manager.prepare_session("", init_op=v.initializer))
    assert text == (
        f"Init operations did not make model ready.  Init op: {v.initializer.name}, init fn: None, "
        "local_init_op: None, error: Variables not initialized: w"
    )
    manager = impl.train.SessionManager(local_init_op=v.initializer, ready_for_local_init_op=ready, ready_op=ready)
    text = raised_by(lambda: manager.prepare_session("", init_op=w.initializer))
    assert text == (
        f"Init operations did not make model ready for local_init.  Init op: {w.initializer.name}, init fn: None, "
        "error: Variables not initialized: v"
    )
    assert raised_by(lambda: manager.prepare_session("", init_fn=id)).endswith(
        f"Init op: None, init fn: {id}, error: Variables not initialized: v, w"
    )
    manager = impl.train.SessionManager(ready_op=ready)
    text = raised_by(lambda: manager.prepare_session("", init_op=[v.initializer]))
    assert "Init op: <no name for <class 'list'>>, init fn: None" in text


@pytest.mark.parametrize("value", [None, 0, "no strings"])
def test_ready_ops_of_other_kinds(impl: Any, graph: Any, value: Any) -> None:
    """An empty tensor says ready, and so do an operation without a result and an int32, as they once did."""
    op = {None: tf.no_op(), 0: tf.constant(7), "no strings": tf.constant([], tf.string)}[value]
    manager = impl.train.SessionManager(ready_op=op)
    with manager.prepare_session("", init_op=tf.no_op()) as session:
        assert session.run(op) is None or value is not None


def test_ready_op_that_fails(impl: Any, graph: Any, tf_log: Any) -> None:
    v = variable()
    manager = impl.train.SessionManager(ready_op=v)
    text = raised_by(lambda: manager.prepare_session("", init_op=tf.no_op()))
    assert "Init operations did not make model ready." in text
    assert "uninitialized" in text
    queue = v1.FIFOQueue(1, [tf.float32], shapes=[[]])
    closed = queue.close()

    def fail_otherwise(session: Any) -> None:
        session.run(closed)

    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [1]), -1)
    manager = impl.train.SessionManager(ready_op=table.lookup(tf.constant(["a"])))
    with pytest.raises(tf.errors.FailedPreconditionError, match="not initialized"):
        manager.prepare_session("", init_fn=fail_otherwise)
    assert any(message.startswith("Model not ready : error [") for message in tf_log.messages)


def test_arguments_that_contradict(impl: Any, graph: Any, empty_path: str) -> None:
    v = variable()
    text = raised_by(lambda: impl.train.SessionManager(ready_for_local_init_op=v.initializer), ValueError)
    assert text.startswith("If you pass a ready_for_local_init_op you must also pass a local_init_op ")
    manager, saver = impl.train.SessionManager(), v1.train.Saver()
    for call in (manager.prepare_session, manager.recover_session):
        text = raised_by(
            lambda call=call: call("", saver=saver, checkpoint_dir=empty_path, checkpoint_filename_with_path="x"),
            ValueError,
        )
        assert text == "Can not provide both checkpoint_dir and checkpoint_filename_with_path."


# Restoring.


@pytest.fixture(params=["directory", "file"])
def source(request: pytest.FixtureRequest) -> Callable[[Any, str], dict[str, Any]]:
    """The arguments that restore a checkpoint, by its directory or by its path."""

    def of(folder: Any, path: str) -> dict[str, Any]:
        if request.param == "file":
            return {"checkpoint_filename_with_path": path}
        return {"checkpoint_dir": str(folder)}

    return of


def test_prepares_from_a_checkpoint(impl: Any, graph: Any, tmp_path: Any, source: Any) -> None:
    path = saved(tmp_path, v=7.0)
    v = variable()
    manager = impl.train.SessionManager(ready_op=v1.report_uninitialized_variables())

    def init_fn(session: Any) -> None:
        raise AssertionError("A restored model isn't initialised.")

    with manager.prepare_session(
        "", init_op=v.initializer, init_fn=init_fn, saver=v1.train.Saver(), **source(tmp_path, path)
    ) as session:
        assert session.run(v) == 7.0


def test_recovers_from_a_checkpoint(impl: Any, graph: Any, tmp_path: Any, tf_log: Any, source: Any) -> None:
    path = saved(tmp_path, v=7.0)
    v, saver = variable(), v1.train.Saver()
    arguments = source(tmp_path, path)
    manager = impl.train.SessionManager(ready_op=v1.report_uninitialized_variables())
    session, recovered = manager.recover_session("", saver=saver, **arguments)
    with session:
        assert recovered is True
        assert session.run(v) == 7.0
    assert f"Restored model from {next(iter(arguments.values()))}" in tf_log.messages
    assert f"Restoring parameters from {path}" in tf_log.messages
    assert saver.last_checkpoints == ([path] if "checkpoint_dir" in arguments else [])


def test_recovers_nothing_from_nothing(impl: Any, graph: Any, empty_path: str, tf_log: Any) -> None:
    v, saver = variable(), v1.train.Saver()
    manager = impl.train.SessionManager(ready_op=v1.report_uninitialized_variables())
    for arguments in ({"checkpoint_dir": empty_path}, {"checkpoint_dir": empty_path + "/not there"}, {}):
        session, recovered = manager.recover_session("", saver=saver, **arguments)
        with session:
            assert recovered is False
            assert not is_initialised(session, v)
    session, recovered = manager.recover_session("", checkpoint_dir=empty_path)
    session.close()
    assert recovered is False
    assert not [record for record in tf_log.records if record.levelname == "WARNING"]


def test_recovers_what_is_not_all(impl: Any, graph: Any, tmp_path: Any, tf_log: Any, source: Any) -> None:
    path = saved(tmp_path, v=7.0)
    v, w = variable("v"), variable("w")
    saver = v1.train.Saver([v])
    arguments = source(tmp_path, path)
    place = next(iter(arguments.values()))
    ready = v1.report_uninitialized_variables()
    manager = impl.train.SessionManager(ready_op=ready)
    session, recovered = manager.recover_session("", saver=saver, **arguments)
    with session:
        assert recovered is False
        assert session.run(v) == 7.0
        assert not is_initialised(session, w)
    text = "Restoring model from %s did not make model ready: Variables not initialized: w"
    assert text % place in tf_log.messages
    manager = impl.train.SessionManager(ready_op=ready, ready_for_local_init_op=ready, local_init_op=v.initializer)
    session, recovered = manager.recover_session("", saver=saver, **arguments)
    with session:
        assert recovered is False
        assert session.run(v) == 7.0
    text = "Restoring model from %s did not make model ready for local init: Variables not initialized: w"
    assert text % place in tf_log.messages


def test_local_init_op_runs_in_a_recovered_session(impl: Any, graph: Any, tmp_path: Any) -> None:
    saved(tmp_path, v=7.0)
    v = variable()
    w = v1.get_variable("w", initializer=lambda: v + 1.0, collections=[v1.GraphKeys.LOCAL_VARIABLES], trainable=False)
    manager = impl.train.SessionManager(
        ready_op=v1.report_uninitialized_variables(),
        ready_for_local_init_op=v1.report_uninitialized_variables(v1.global_variables()),
        local_init_op=w.initializer,
    )
    session, recovered = manager.recover_session("", saver=v1.train.Saver([v]), checkpoint_dir=str(tmp_path))
    with session:
        assert recovered is True
        assert session.run([v, w]) == [7.0, 8.0]


def test_a_checkpoint_that_is_not_there(impl: Any, graph: Any, tmp_path: Any) -> None:
    variable()
    manager, saver, path = impl.train.SessionManager(), v1.train.Saver(), str(tmp_path / "none-3")
    text = raised_by(lambda: manager.prepare_session("", saver=saver, checkpoint_filename_with_path=path), ValueError)
    assert text == f"The passed save_path is not a valid checkpoint: {path}"


def test_a_checkpoint_of_another_model(impl: Any, graph: Any, tmp_path: Any, source: Any, tf_log: Any) -> None:
    """The program's mistake, not damage: no older checkpoint is tried, and the error is TensorFlow's."""
    saved(tmp_path, step=4, v=7.0, w=1.0)
    path = saved(tmp_path, step=5, v=7.0)
    variable("v"), variable("w")
    manager, saver = impl.train.SessionManager(), v1.train.Saver()
    text = raised_by(
        lambda: manager.recover_session("", saver=saver, **source(tmp_path, path)), tf.errors.NotFoundError
    )
    assert "Restoring from checkpoint failed. This is most likely due to a Variable name or other graph key" in text
    assert "Key w not found in checkpoint" in text
    assert not [record for record in tf_log.records if record.levelname == "WARNING"]


def test_a_checkpoint_of_another_type(impl: Any, graph: Any, tmp_path: Any, source: Any) -> None:
    path = saved(tmp_path, v=7.0)
    v1.get_variable("v", initializer=tf.constant(1.0, tf.float64))
    manager, saver = impl.train.SessionManager(), v1.train.Saver()
    text = raised_by(
        lambda: manager.recover_session("", saver=saver, **source(tmp_path, path)), tf.errors.InvalidArgumentError
    )
    assert "Restoring from checkpoint failed. This is most likely due to a mismatch between" in text


# Waiting for a checkpoint.


def test_waits_for_a_checkpoint(
    impl: Any, graph: Any, empty_path: str, clock: Any, monkeypatch: pytest.MonkeyPatch, tf_log: Any
) -> None:
    v = variable()
    manager = impl.train.SessionManager(recovery_wait_secs=1)
    saver = v1.train.Saver()
    chief = v1.Session()
    chief.run(v.initializer)

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if len(clock.slept) == 3:
            saver.save(chief, os.path.join(empty_path, "model.ckpt"), 1)

    monkeypatch.setattr("time.sleep", sleep)
    session, recovered = manager.recover_session("", saver=saver, checkpoint_dir=empty_path, wait_for_checkpoint=True)
    with chief, session:
        assert recovered
        assert session.run(v) == 1.0
    assert clock.slept == [1, 1, 1]
    assert any(message.startswith("Waiting for checkpoint to be available.") for message in tf_log.messages)


def test_waits_for_a_checkpoint_no_longer_than_it_may(
    impl: Any, graph: Any, empty_path: str, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    v = variable()
    monkeypatch.setattr("time.sleep", clock.sleep)
    manager = impl.train.SessionManager(recovery_wait_secs=2)
    arguments = {"saver": v1.train.Saver(), "checkpoint_dir": empty_path, "wait_for_checkpoint": True}
    session, recovered = manager.recover_session("", max_wait_secs=5, **arguments)
    session.close()
    assert recovered is False
    assert clock.slept == [2, 2, 2]
    with manager.prepare_session("", init_op=v.initializer, max_wait_secs=2, **arguments) as session:
        assert session.run(v) == 1.0
    assert clock.slept == [2, 2, 2, 2]


# Waiting for a session.


@pytest.fixture
def server() -> Any:
    """A server whose sessions share their variables, which its own session initialises."""
    return v1.train.Server.create_local_server()


def test_waits_for_a_session(
    impl: Any, graph: Any, server: Any, clock: Any, monkeypatch: pytest.MonkeyPatch, tf_log: Any
) -> None:
    v = variable("waited_for")
    chief = v1.Session(server.target)

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if len(clock.slept) == 2:
            chief.run(v.initializer)

    monkeypatch.setattr("time.sleep", sleep)
    manager = impl.train.SessionManager(ready_op=v1.report_uninitialized_variables(), recovery_wait_secs=3)
    with chief, manager.wait_for_session(server.target, max_wait_secs=100) as session:
        assert session.run(v) == 1.0
    assert clock.slept == [3, 3]
    text = (
        "Waiting for model to be ready.  Ready_for_local_init_op:  None, ready: Variables not initialized: waited_for"
    )
    assert any(message.startswith(text) for message in tf_log.messages)


def test_local_init_op_waits_for_its_turn(
    impl: Any, graph: Any, clock: Any, monkeypatch: pytest.MonkeyPatch, tf_log: Any
) -> None:
    v, w = variable("v"), variable("w", local=True)
    monkeypatch.setattr("time.sleep", clock.sleep)
    manager = impl.train.SessionManager(
        ready_op=v1.report_uninitialized_variables(),
        ready_for_local_init_op=v1.report_uninitialized_variables([v]),
        local_init_op=w.initializer,
    )
    with pytest.raises(tf.errors.DeadlineExceededError, match="Session was not ready after waiting 35 secs"):
        manager.wait_for_session("", max_wait_secs=35)
    text = "Waiting for model to be ready.  Ready_for_local_init_op:  Variables not initialized: v, ready: None"
    assert sum(message.startswith(text) for message in tf_log.messages) == 1


def test_waits_no_longer_than_it_may(impl: Any, graph: Any, clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    variable()
    monkeypatch.setattr("time.sleep", clock.sleep)
    manager = impl.train.SessionManager(ready_op=v1.report_uninitialized_variables(), recovery_wait_secs=10)
    for limit, slept in ((9, 0), (10, 1), (35, 3)):
        clock.slept.clear()
        with pytest.raises(tf.errors.DeadlineExceededError) as raised:
            manager.wait_for_session("", max_wait_secs=limit)
        assert raised.value.message.startswith(f"Session was not ready after waiting {limit} secs.")
        assert clock.slept == [10] * slept


@pytest.mark.slow
def test_waits_without_a_limit(impl: Any, graph: Any, clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`None` and infinity are no limit."""
    variable()

    class EnoughError(Exception):
        pass

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if len(clock.slept) == 50:
            raise EnoughError

    monkeypatch.setattr("time.sleep", sleep)
    manager = impl.train.SessionManager(ready_op=v1.report_uninitialized_variables(), recovery_wait_secs=1e6)
    for arguments in ({}, {"max_wait_secs": None}):
        clock.slept.clear()
        with pytest.raises(EnoughError):
            manager.wait_for_session("", **arguments)


def test_needs_no_wait_without_a_ready_op(impl: Any, graph: Any) -> None:
    v = variable()
    with impl.train.SessionManager().wait_for_session("") as session:
        assert not is_initialised(session, v)


# What is ours.


@pytest.mark.slow
def test_the_wait_is_logged_at_growing_intervals(
    graph: Any, clock: Any, monkeypatch: pytest.MonkeyPatch, tf_log: Any
) -> None:
    from fastsup import train

    variable("a"), variable("b")
    monkeypatch.setattr("time.sleep", clock.sleep)
    manager = train.SessionManager(ready_op=v1.report_uninitialized_variables(), recovery_wait_secs=10)
    started, logged_at = clock.now, []
    info = tf_logging.info
    monkeypatch.setattr(tf_logging, "info", lambda *args: (logged_at.append(clock.now - started), info(*args)))
    with pytest.raises(tf.errors.DeadlineExceededError) as raised:
        manager.wait_for_session("", max_wait_secs=2000)
    assert logged_at == [0, 10, 30, 70, 150, 310, 630, 1230, 1830]
    (third,) = [message for message in tf_log.messages if message.endswith("; 30 s so far, 2000 s at most.")]
    assert "Variables not initialized: a, b" in third
    assert "Variables not initialized: a, b" in raised.value.message
    assert "in this process" in raised.value.message
    assert len(clock.slept) == 200


def test_the_wait_names_the_chief(graph: Any, server: Any, clock: Any) -> None:
    from fastsup import train

    variable("never_initialised")
    manager = train.SessionManager(ready_op=v1.report_uninitialized_variables(), recovery_wait_secs=10)
    with pytest.raises(tf.errors.DeadlineExceededError) as raised:
        manager.wait_for_session(server.target, max_wait_secs=1)
    assert server.target in raised.value.message
    assert "the chief" in raised.value.message
    assert "Variables not initialized: never_initialised" in raised.value.message


@pytest.mark.parametrize(
    "name",
    [
        "SessionManager",
        "ChiefSessionCreator",
        "WorkerSessionCreator",
        "SingularMonitoredSession",
        "MonitoredTrainingSession",
    ],
)
def test_bad_arguments_are_refused(graph: Any, name: str) -> None:
    from fastsup import train

    make = getattr(train, name)
    with pytest.raises(ValueError, match="recovery_wait_secs must be finite, got inf"):
        make(recovery_wait_secs=float("inf"))
    with pytest.raises(ValueError, match="got nan"):
        make(recovery_wait_secs=float("nan"))
    with pytest.raises(TypeError, match="recovery_wait_secs must be a number of seconds, got '30'"):
        make(recovery_wait_secs="30")
    if name != "WorkerSessionCreator":
        with pytest.raises(ValueError, match="restore must be one of 'strict', 'partial', got 'some'"):
            make(restore="some")


def test_recovery_wait_secs_reaches_the_worker(
    graph: Any, clock: Any, monkeypatch: pytest.MonkeyPatch, trace: Any
) -> None:
    from fastsup import train

    variable()
    monkeypatch.setattr("time.sleep", clock.sleep)
    arguments: dict[str, Any] = {"max_wait_secs": 10, "recovery_wait_secs": 4}
    with pytest.raises(tf.errors.DeadlineExceededError):
        train.MonitoredTrainingSession(is_chief=False, **arguments)
    with pytest.raises(tf.errors.DeadlineExceededError):
        train.WorkerSessionCreator(**arguments).create_session()
    assert clock.slept == [4, 4, 4, 4]


def test_a_worker_looks_early(graph: Any, server: Any, clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chief that restarts is back in seconds. `recovery_wait_secs` is the longest pause."""
    from fastsup import train

    variable("never_there")
    monkeypatch.setattr("time.sleep", clock.sleep)
    creator = train.WorkerSessionCreator(master=server.target, max_wait_secs=60, recovery_wait_secs=3)
    with pytest.raises(tf.errors.DeadlineExceededError):
        creator.create_session()
    assert clock.slept[:5] == [0.5, 0.5, 0.5, 0.5, 0.5]
    assert clock.slept[5] == pytest.approx(0.625, abs=0.1)
    assert clock.slept == sorted(clock.slept)
    assert clock.slept[-1] == 3
    assert 57 < sum(clock.slept) <= 60


def test_a_session_that_fails_is_closed(graph: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import fastsup
    from fastsup import train

    closed = []
    close = fastsup.Session.close

    def note_close(self: Any) -> None:
        # Not those of other tests, collected meanwhile.
        if self.graph is graph:
            closed.append(self)
        close(self)

    monkeypatch.setattr(fastsup.Session, "close", note_close)
    variable()
    manager = train.SessionManager(ready_op=v1.report_uninitialized_variables())
    saver = v1.train.Saver()
    with pytest.raises(RuntimeError):
        manager.prepare_session("", init_op=tf.no_op())
    saved(tmp_path, other=1.0)
    with pytest.raises(tf.errors.NotFoundError):
        manager.recover_session("", saver=saver, checkpoint_dir=str(tmp_path))
    assert len(set(map(id, closed))) == 2
