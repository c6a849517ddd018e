"""Sessions that the program makes itself, sessions that fail on schedule, and the threads alongside them."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

v1 = tf.compat.v1


def aborted() -> Exception:
    return tf.errors.AbortedError(None, None, "the server went away")


class Failing:
    """Stands before a session, and fails where its schedule says so. Not a tf.Session."""

    def __init__(self, session: Any, schedule: list[Any] = (), close_error: Any = None) -> None:  # type: ignore
        self._session, self._schedule, self._close_error = session, list(schedule), close_error
        self.graph, self.closed, self.runs = session.graph, 0, []

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        self.runs.append((fetches, feed_dict, options, run_metadata))
        error = self._schedule.pop(0) if self._schedule else None
        if error is not None:
            raise error()
        return self._session.run(fetches, feed_dict)

    def close(self) -> None:
        self.closed += 1
        if self._close_error is not None:
            raise self._close_error()


@pytest.fixture
def creator_of(impl: Any) -> Callable[..., Any]:
    """A SessionCreator whose sessions are what a list of functions gives, one after the other."""

    def make(*functions: Callable[[], Any]) -> Any:
        class Creator(impl.train.SessionCreator):
            def __init__(self) -> None:
                self.made: list[Any] = []
                self.waiting = list(functions)

            def create_session(self) -> Any:
                session = self.waiting.pop(0)()
                self.made.append(session)
                return session

        return Creator()

    return make


def test_session_of_tf_itself(impl: Any, graph: Any, creator_of: Any, trace: Any, counting_step: Any) -> None:
    step = counting_step()
    initializer = v1.global_variables_initializer()
    hook = trace.hook("a", before_run=lambda *_: impl.train.SessionRunArgs({"step": step.read}))
    stop = impl.train.StopAtStepHook(last_step=3)

    def plain() -> Any:
        session = v1.Session()
        session.run(initializer)
        return session

    with impl.train.MonitoredSession(creator_of(plain), [hook, stop]) as session:
        while not session.should_stop():
            session.run(step.op)
    assert [values.results["step"] for _, values in hook.arguments["after_run"]] == [0, 1, 2]


def test_session_of_another_kind(impl: Any, graph: Any, creator_of: Any, trace: Any) -> None:
    """It gets what a hooked session asks for: the caller's fetches and each hook's, in one dictionary."""
    x = v1.placeholder_with_default(1.0, [])
    y = tf.constant(2.0)
    hook = trace.hook("a", before_run=lambda *_: impl.train.SessionRunArgs([y], {x: 5.0}))
    quiet = trace.hook("b")
    creator = creator_of(lambda: Failing(v1.Session()))
    options, metadata = v1.RunOptions(), v1.RunMetadata()
    with impl.train.MonitoredSession(creator, [hook, quiet]) as session:
        assert session.run(x, options=options, run_metadata=metadata) == 5.0
        assert session.graph is graph
    (mock,) = creator.made
    ((fetches, feeds, seen_options, seen_metadata),) = mock.runs
    assert fetches == {"caller": x, hook: [y]}
    assert feeds == {x: 5.0}
    assert seen_options is options
    assert seen_metadata is metadata
    assert mock.closed == 1
    assert hook.arguments["after_run"][0][1].results == [2.0]
    assert quiet.arguments["after_run"][0][1].results is None
    assert hook.arguments["end"] == [(mock,)]


def test_recovers_through_sessions_that_fail(impl: Any, graph: Any, creator_of: Any, trace: Any) -> None:
    x = v1.placeholder_with_default(1.0, [])
    schedules = [[None, aborted], [None, None, aborted], []]
    creator = creator_of(*(lambda schedule=schedule: Failing(v1.Session(), schedule) for schedule in schedules))
    hook = trace.hook("a")
    with impl.train.MonitoredSession(creator, [hook]) as session:
        assert [session.run(x, {x: float(n)}) for n in range(5)] == [0.0, 1.0, 2.0, 3.0, 4.0]
        assert [len(mock.runs) for mock in creator.made] == [2, 3, 2]
        assert [mock.closed for mock in creator.made] == [1, 1, 0]
    created = [arguments[0] for arguments in hook.arguments["after_create_session"]]
    assert created == creator.made


def test_no_session_left_to_recover_with(impl: Any, graph: Any, creator_of: Any, trace: Any) -> None:
    x = tf.constant(1.0)
    creator = creator_of(lambda: Failing(v1.Session(), [aborted]))
    with pytest.raises(IndexError, match="pop from empty list"):
        with impl.train.MonitoredSession(creator, [trace.hook("a")]) as session:
            session.run(x)
    assert creator.made[0].closed == 1
    assert trace == ["a.begin", "a.after_create_session", "a.before_run"]


def fail(error: Exception) -> Any:
    raise error


def test_creator_that_fails(impl: Any, graph: Any, creator_of: Any, trace: Any, tf_log: Any) -> None:
    with pytest.raises(KeyError, match="mine"):
        impl.train.MonitoredSession(creator_of(lambda: fail(KeyError("mine"))), [trace.hook("a")])
    assert trace == ["a.begin"]
    trace.clear()
    creator = creator_of(lambda: fail(aborted()), lambda: fail(aborted()), v1.Session)
    with impl.train.MonitoredSession(creator, [trace.hook("a")]):
        assert len(creator.made) == 1
    assert trace == ["a.begin", "a.after_create_session", "a.end"]
    text = "An error was raised while a session was being created."
    assert sum(message.startswith(text) and "the server went away" in message for message in tf_log.messages) == 2


def test_recovery_is_logged(impl: Any, graph: Any, trace: Any, tf_log: Any) -> None:
    x = tf.constant(1.0)
    hook = trace.hook("a", before_run=lambda number, _: fail(aborted()) if number == 0 else None)
    with impl.train.MonitoredSession(hooks=[hook]) as session:
        session.run(x)
    text = "An error was raised. This may be due to a preemption in a connected worker or parameter server."
    (message,) = [message for message in tf_log.messages if message.startswith(text)]
    assert "the server went away" in message


@pytest.mark.parametrize("error", [tf.errors.AbortedError, tf.errors.UnavailableError])
def test_preemption_while_closing_is_logged_and_no_error(
    impl: Any, graph: Any, creator_of: Any, tf_log: Any, error: Any
) -> None:
    creator = creator_of(lambda: Failing(v1.Session(), close_error=lambda: error(None, None, "gone already")))
    with impl.train.MonitoredSession(creator):
        pass
    text = "An error occurred when attempting to close the session."
    (record,) = [record for record in tf_log.records if record.getMessage().startswith(text)]
    assert record.levelname == "ERROR"
    assert "gone already" in record.getMessage()


def test_what_is_a_preemption_can_be_replaced(
    impl: Any, graph: Any, trace: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs set it in the module of the monitored sessions, and it is looked up there when an error comes."""
    module = sys.modules[impl.train.MonitoredSession.__module__]
    x = tf.constant(1.0)
    errors = [tf.errors.DataLossError(None, None, "lost")]
    hook = trace.hook("a", before_run=lambda *_: fail(errors.pop()) if errors else None)
    with impl.train.MonitoredSession(hooks=[hook]) as session:
        monkeypatch.setattr(module, "_PREEMPTION_ERRORS", (*module._PREEMPTION_ERRORS, tf.errors.DataLossError))
        assert session.run(x) == 1.0
    assert hook.calls["after_create_session"] == 2


def test_session_manager_can_be_replaced(impl: Any, graph: Any, trace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs assign SessionManager.prepare_session, and their function is the one that is called."""
    original = impl.train.SessionManager.prepare_session

    def prepare_session(*args: Any, **kwargs: Any) -> Any:
        trace.append("prepare_session")
        return original(*args, **kwargs)

    monkeypatch.setattr(impl.train.SessionManager, "prepare_session", prepare_session)
    with impl.train.MonitoredSession(hooks=[trace.hook("a")]):
        pass
    assert trace == ["a.begin", "prepare_session", "a.after_create_session", "a.end"]


def test_subclass_of_a_creator(impl: Any, graph: Any, trace: Any) -> None:
    class Creator(impl.train.ChiefSessionCreator):
        def create_session(self) -> Any:
            trace.append("mine")
            return super().create_session()

    with impl.train.MonitoredSession(Creator(), [trace.hook("a")]):
        pass
    assert trace == ["a.begin", "mine", "a.after_create_session", "a.end"]


# Threads.


def start_thread(work: Callable[[Any, Any], None]) -> Callable[..., None]:
    """An after_create_session that starts a thread under the coordinator."""

    def start(_: int, session: Any, coord: Any) -> None:
        def body() -> None:
            with coord.stop_on_exception():
                work(session, coord)

        thread = threading.Thread(target=body, daemon=True)
        coord.register_thread(thread)
        thread.start()

    return start


@pytest.mark.parametrize("kind", ["MonitoredSession", "SingularMonitoredSession"])
def test_a_threads_error_is_raised_at_the_end(impl: Any, graph: Any, trace: Any, kind: str) -> None:
    x = tf.constant(1.0)
    hook = trace.hook("a", after_create_session=start_thread(lambda *_: fail(KeyError("in a thread"))))
    with pytest.raises(KeyError, match="in a thread"):
        with getattr(impl.train, kind)(hooks=[hook]) as session:
            hook.arguments["after_create_session"][0][1].wait_for_stop(10)
            assert session.run(x) == 1.0  # A run that succeeds tells nothing of it.
    assert trace[-1] == "a.end"


def test_a_threads_preemption_is_the_cause_of_a_failing_run(impl: Any, graph: Any, trace: Any) -> None:
    """A run that fails after a thread was preempted failed because of it: recovered, the run is repeated."""
    x = tf.constant(1.0)
    failures = [ValueError("for a reason"), None]
    work = [lambda *_: fail(aborted()), lambda session, coord: None]

    def before_run(number: int, _: Any) -> None:
        if number == 0:
            hook.arguments["after_create_session"][0][1].wait_for_stop(10)
            raise failures[0]

    hook = trace.hook("a", before_run=before_run, after_create_session=lambda n, *args: start_thread(work[n])(n, *args))
    with impl.train.MonitoredSession(hooks=[hook]) as session:
        assert session.run(x) == 1.0
    assert " ".join(trace) == (
        "a.begin a.after_create_session a.before_run a.after_create_session a.before_run a.after_run a.end"
    )


def test_should_stop_recovers_from_a_threads_preemption(impl: Any, graph: Any, trace: Any, tf_log: Any) -> None:
    x = tf.constant(1.0)
    work = [lambda *_: fail(aborted()), lambda session, coord: None]
    hook = trace.hook("a", after_create_session=lambda n, *args: start_thread(work[n])(n, *args))
    with impl.train.MonitoredSession(hooks=[hook]) as session:
        hook.arguments["after_create_session"][0][1].wait_for_stop(10)
        assert session.should_stop() is False
        assert hook.calls["after_create_session"] == 2
        assert session.run(x) == 1.0
    assert "An error was raised while considering whether the session is complete." in tf_log.text


def test_threads_end_when_the_session_ends(impl: Any, graph: Any, trace: Any) -> None:
    ended = []

    def until_stop(session: Any, coord: Any) -> None:
        coord.wait_for_stop()
        ended.append(True)

    with impl.train.MonitoredSession(hooks=[trace.hook("a", after_create_session=start_thread(until_stop))]):
        assert not ended
    assert ended == [True]


def queue_of(values: list[float]) -> Any:
    """A dequeued element of a queue that queue runners fill with each of the values, once."""
    source = v1.train.input_producer(tf.constant(values), num_epochs=1, shuffle=False)
    return source.dequeue()


@pytest.mark.parametrize("kind", ["MonitoredSession", "SingularMonitoredSession"])
def test_queue_runners_run_until_the_end_of_input(impl: Any, graph: Any, trace: Any, kind: str) -> None:
    element = queue_of([1.0, 2.0, 3.0])
    seen = []
    with getattr(impl.train, kind)(hooks=[trace.hook("a")]) as session:
        while not session.should_stop():
            seen.append(session.run(element))
    assert seen == [1.0, 2.0, 3.0]
    assert trace[-1] == "a.end"


def test_queue_runners_error_is_raised(impl: Any, graph: Any) -> None:
    queue = v1.FIFOQueue(1, [tf.float32])
    check = tf.raw_ops.Assert(condition=tf.constant(False), data=["the input is broken"])
    with tf.control_dependencies([check]):
        enqueue = queue.enqueue([1.0])
    v1.train.add_queue_runner(v1.train.QueueRunner(queue, [enqueue]))
    element = queue.dequeue()
    with pytest.raises(tf.errors.InvalidArgumentError, match="the input is broken"):
        with impl.train.MonitoredSession() as session:
            deadline = time.monotonic() + 10
            while not session.should_stop() and time.monotonic() < deadline:
                session.run(element)


@pytest.mark.parametrize("way", ["run", "run_loop"])
def test_a_file_behind_queues_that_is_cut_short(impl: Any, graph: Any, tmp_path: Any, way: str) -> None:
    """The batches before the cut come in order, as many as the error leaves time for. Then the error is raised."""
    path = str(tmp_path / "records")
    with tf.io.TFRecordWriter(path) as writer:
        for number in range(20):
            writer.write(b"%d" % number)
    os.truncate(path, os.path.getsize(path) - 5)
    names = v1.train.string_input_producer([path], num_epochs=1, shuffle=False)
    _, record = v1.TFRecordReader().read(names)
    batch = v1.train.batch([record], 8)
    seen: list[bytes] = []
    noted = v1.py_func(seen.extend, [batch], [])
    with pytest.raises(tf.errors.DataLossError, match="truncated record"):
        with impl.train.MonitoredSession() as session:
            if way == "run_loop" and impl.name == "fastsup":
                session.run_loop(noted)
            while not session.should_stop():
                session.run(noted)
    assert seen in [[b"%d" % number for number in range(batches * 8)] for batches in range(3)]


def test_start_queue_runners_knows_monitored_sessions(impl: Any, graph: Any) -> None:
    """TensorFlow's function leaves alone a session that has started them itself, which it tells by the class's name."""
    element = queue_of([1.0])
    for kind in ("MonitoredSession", "SingularMonitoredSession"):
        with getattr(impl.train, kind)() as session:
            assert v1.train.start_queue_runners(sess=session) == []
            assert session.run(element) == 1.0


def test_an_engine_that_there_is_none_of(both: Any, graph: Any) -> None:
    """The same words, the session's configuration among them."""

    def error(train: Any) -> str:
        with pytest.raises(tf.errors.NotFoundError) as raised:
            train.MonitoredTrainingSession(master="bogus")
        return str(raised.value)

    assert error(both.fastsup.train) == error(both.tensorflow.train)
