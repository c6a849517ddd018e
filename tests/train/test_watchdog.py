"""WatchdogHook: a stall is noticed, said once with the stacks, and on request ends the session."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

import pytest
import tensorflow as tf

from fastsup import train

v1 = tf.compat.v1
STALL = "WatchdogHook: no step has finished for 0.2 seconds."


def stalls(tf_log: Any) -> list[str]:
    return [record.getMessage() for record in tf_log.records if record.getMessage().startswith(STALL)]


def watchdogs() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "watchdog"]


@pytest.fixture
def starved(graph: Any) -> Any:
    """A step that waits for a queue into which nobody puts anything."""
    return v1.FIFOQueue(1, tf.float32, shapes=[()]).dequeue()


def test_a_stall_is_logged_once(impl: Any, graph: Any, counting_step: Any, tf_log: Any, wait_for: Any) -> None:
    step = counting_step().op
    with impl.train.MonitoredSession(hooks=[train.WatchdogHook(0.2)]) as session:
        session.run(step)
        # On a busy machine there may be one before the first step has ended.
        before = len(stalls(tf_log))
        wait_for(lambda: len(stalls(tf_log)) > before)
        time.sleep(0.5)
        assert len(stalls(tf_log)) == before + 1
        assert tf_log.records[-1].levelname == "ERROR"
        session.run(step)
        wait_for(lambda: len(stalls(tf_log)) == before + 2)
    first, _ = stalls(tf_log)[before:]
    assert "MainThread" in first
    assert "test_watchdog.py:" in first
    assert "in test_a_stall_is_logged_once" in first


class Pace:
    """Says whether the machine itself has held the steps up for so long that it was a stall.

    Args:
      timeout_secs: that of the WatchdogHook.
    """

    def __init__(self, timeout_secs: float) -> None:
        self._timeout_secs = timeout_secs
        self._times = [time.monotonic()]

    def note(self) -> None:
        """To be called after a step, and after the session's end."""
        self._times.append(time.monotonic())

    def was_held_up(self) -> bool:
        # The step ends sometime within its call: so there may be two calls, or what lies around two, between two ends.
        times = [self._times[0], *self._times, self._times[-1]]
        return any(later - sooner >= self._timeout_secs for sooner, later in zip(times, times[2:], strict=False))


def test_steps_are_no_stall(impl: Any, graph: Any, counting_step: Any, tf_log: Any) -> None:
    step, pace = counting_step().op, Pace(0.8)
    with impl.train.MonitoredSession(hooks=[train.WatchdogHook(0.8)]) as session:
        for _ in range(40):
            session.run(step)
            pace.note()
            time.sleep(0.03)
    pace.note()
    assert pace.was_held_up() or not [message for message in tf_log.messages if "WatchdogHook" in message]


def test_run_loop_is_no_stall(graph: Any, counting_step: Any, tf_log: Any) -> None:
    step, pace = counting_step().op, Pace(0.2)
    with train.MonitoredSession(hooks=[train.WatchdogHook(0.2)]) as session:
        started = time.monotonic()
        while time.monotonic() - started < 0.6:
            session.run_loop(step, steps=1000)
            pace.note()
    pace.note()
    assert pace.was_held_up() or not stalls(tf_log)


def test_other_runs_are_no_progress(graph: Any, starved: Any, tf_log: Any) -> None:
    """A thread that looks at something now and then doesn't hide that training is stuck."""
    tf.constant(1, name="seen")
    with pytest.raises(tf.errors.DeadlineExceededError):
        with train.MonitoredSession(hooks=[train.WatchdogHook(0.2, stop=True)]) as session:
            raw, done = session.raw_session(), threading.Event()

            def look() -> None:
                with contextlib.suppress(tf.errors.OpError):
                    while not done.wait(0.02):
                        raw.run("seen:0")

            thread = threading.Thread(target=look)
            thread.start()
            try:
                session.run(starved)
            finally:
                done.set()
                thread.join()


def test_the_stuck_step_raises(starved: Any, tf_log: Any) -> None:
    with pytest.raises(tf.errors.DeadlineExceededError, match=r"WatchdogHook .*timeout_secs=0\.2") as raised:
        with train.MonitoredSession(hooks=[train.WatchdogHook(0.2, stop=True)]) as session:
            with pytest.raises(tf.errors.DeadlineExceededError) as in_the_step:
                session.run(starved)
            for later in (session.run, session.raw_session().run):
                with pytest.raises(tf.errors.DeadlineExceededError):
                    later(starved)
            raise in_the_step.value
    assert raised.value is in_the_step.value
    assert len(stalls(tf_log)) == 1


@pytest.mark.parametrize("executor", ["inline", "thread_pool", "single_threaded"])
def test_in_every_executor(starved: Any, executor: str) -> None:
    with pytest.raises(tf.errors.DeadlineExceededError, match="WatchdogHook"):
        with train.SingularMonitoredSession(hooks=[train.WatchdogHook(0.2, stop=True)], executor=executor) as session:
            session.run(starved)


def test_with_a_server(starved: Any) -> None:
    server = v1.train.Server.create_local_server()
    creator = train.ChiefSessionCreator(master=server.target)
    with pytest.raises(tf.errors.DeadlineExceededError, match="WatchdogHook"):
        with train.MonitoredSession(creator, hooks=[train.WatchdogHook(0.2, stop=True)]) as session:
            session.run(starved)


def test_in_tensorflows_sessions_closing_raises(starved: Any) -> None:
    with pytest.raises(tf.errors.DeadlineExceededError, match="WatchdogHook"):
        with v1.train.MonitoredSession(hooks=[train.WatchdogHook(0.2, stop=True)]) as session:
            with pytest.raises(tf.errors.CancelledError):
                session.run(starved)
            raise RuntimeError("the caller's")


def test_the_loop_ends_where_it_hung_in_its_own_code(
    impl: Any, graph: Any, counting_step: Any, tf_log: Any, wait_for: Any
) -> None:
    step = counting_step().op
    with pytest.raises(tf.errors.DeadlineExceededError, match="WatchdogHook"):
        with impl.train.MonitoredSession(hooks=[train.WatchdogHook(0.2, stop=True)]) as session:
            while not session.should_stop():
                session.run(step)
                wait_for(lambda: stalls(tf_log) and not watchdogs())


def test_hooks_are_told(starved: Any) -> None:
    told: list[Any] = []

    class Told(v1.train.SessionRunHook):
        def on_error(self, run_context: Any, exception: BaseException) -> None:
            told.append(exception)

    with pytest.raises(tf.errors.DeadlineExceededError) as raised:
        with train.MonitoredSession(hooks=[Told(), train.WatchdogHook(0.2, stop=True)]) as session:
            session.run(starved)
    assert told == [raised.value]


class Ends:
    """Ways in which a session ends."""

    @staticmethod
    def normally(session: Any) -> None:
        pass

    @staticmethod
    def with_an_error(session: Any) -> None:
        raise KeyError("an error")

    @staticmethod
    def at_the_end_of_the_input(session: Any) -> None:
        raise tf.errors.OutOfRangeError(None, None, "the end")


@pytest.mark.parametrize("end", [Ends.normally, Ends.with_an_error, Ends.at_the_end_of_the_input])
def test_the_thread_ends_with_the_session(impl: Any, graph: Any, counting_step: Any, end: Any) -> None:
    step = counting_step().op
    # TensorFlow's tell no hook of an error: there the thread finds out at its next look.
    patience = 0.4 if impl.name == "tensorflow" else 4e6
    try:
        with impl.train.MonitoredSession(hooks=[train.WatchdogHook(patience)]) as session:
            session.run(step)
            (thread,) = watchdogs()
            assert thread.daemon
            end(session)
    except KeyError:
        assert end is Ends.with_an_error
    thread.join(60)
    assert not thread.is_alive()


def test_a_recovered_session_is_watched_anew(impl: Any, graph: Any, counting_step: Any, wait_for: Any) -> None:
    step = counting_step().op
    failures = [tf.errors.AbortedError(None, None, "preempted")]

    class Preempted(v1.train.SessionRunHook):
        def before_run(self, run_context: Any) -> None:
            if failures:
                raise failures.pop()

    with impl.train.MonitoredSession(hooks=[Preempted(), train.WatchdogHook(0.4)]) as session:
        before = watchdogs()
        session.run(step)
        wait_for(lambda: not before[0].is_alive())
        assert len(watchdogs()) == 1


def test_a_step_never_calls_it(graph: Any, counting_step: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    step = counting_step().op
    hook = train.WatchdogHook(100)
    with train.MonitoredSession(hooks=[hook]) as session:
        for _ in range(10):
            session.run(step)
        session.run_loop(step, steps=10)
        assert hook._calls == 0
        assert session.raw_session().runs_ended == 20


@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan")])
def test_a_timeout_is_positive_and_finite(value: float) -> None:
    with pytest.raises(ValueError, match=f"timeout_secs must be positive and finite, got {value!r}"):
        train.WatchdogHook(value)


@pytest.mark.parametrize("value", [None, "1", True, [1]])
def test_a_timeout_is_a_number(value: Any) -> None:
    with pytest.raises(TypeError, match="timeout_secs must be a number of seconds, got "):
        train.WatchdogHook(value)


def test_stop_is_a_bool() -> None:
    with pytest.raises(TypeError, match="stop must be True or False, got 'yes'"):
        train.WatchdogHook(1, stop="yes")
