"""WrappedSession, which all wrapped sessions are, and CoordinatedSession."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import tensorflow as tf

v1 = tf.compat.v1


@pytest.fixture
def session(impl: Any, graph: Any) -> Any:
    with impl.Session() as session:
        yield session


@pytest.fixture
def x(graph: Any) -> Any:
    return v1.placeholder_with_default(0, [], name="x")


# WrappedSession, which all are.


def test_they_are_wrapped_sessions(wrapped: Any) -> None:
    for kind in (wrapped.HookedSession, wrapped.CoordinatedSession, wrapped.RecoverableSession):
        assert issubclass(kind, wrapped.WrappedSession)


def make(wrapped: Any, kind: str, session: Any) -> Any:
    if kind == "CoordinatedSession":
        return wrapped.CoordinatedSession(session, v1.train.Coordinator())
    if kind == "HookedSession":
        return wrapped.HookedSession(session, [])
    if kind == "RecoverableSession":
        return wrapped.RecoverableSession(type("Creator", (), {"create_session": lambda self: session})())
    return wrapped.WrappedSession(session)


KINDS = ["WrappedSession", "HookedSession", "CoordinatedSession"]


@pytest.mark.parametrize("kind", KINDS)
def test_delegates(wrapped: Any, session: Any, x: Any, kind: str) -> None:
    outer = make(wrapped, kind, session)
    assert outer.graph is session.graph
    assert outer.sess_str == session.sess_str
    assert outer.run(x) == 0
    assert outer.run(x, {x: 3}) == 3
    assert outer.run(fetches={"a": [x]}, feed_dict={x: 4}) == {"a": [4]}
    assert outer.run("x:0", options=v1.RunOptions(), run_metadata=v1.RunMetadata()) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_should_stop_once_closed_and_closing_twice(wrapped: Any, session: Any, x: Any, kind: str) -> None:
    outer = make(wrapped, kind, session)
    assert outer.should_stop() is False
    outer.close()
    assert outer.should_stop() is True
    outer.close()
    assert outer.should_stop() is True
    with pytest.raises(RuntimeError):
        session.run(x)


def test_a_closed_wrapped_session_has_no_session(impl: Any, wrapped: Any, session: Any, x: Any) -> None:
    outer = wrapped.WrappedSession(session)
    outer.close()
    says = "'NoneType' object has no attribute 'run'" if impl.name == "tensorflow" else "a closed Session"
    with pytest.raises(AttributeError, match=says):
        outer.run(x)
    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'graph'"):
        outer.graph


def stopping_after(wrapped: Any, session: Any, count: int) -> Any:
    class StopsAfter(wrapped.WrappedSession):
        checks = 0

        def _check_stop(self) -> bool:
            self.checks += 1
            return self.checks > count

    return StopsAfter(session)


def test_should_stop_asks_check_stop(wrapped: Any, session: Any) -> None:
    outer = stopping_after(wrapped, session, 2)
    assert [outer.should_stop() for _ in range(4)] == [False, False, True, True]


@pytest.mark.parametrize("kind", ["WrappedSession", "HookedSession", "CoordinatedSession"])
def test_should_stop_asks_the_wrapped_session(wrapped: Any, session: Any, kind: str) -> None:
    outer = make(wrapped, kind, stopping_after(wrapped, session, 2))
    assert [outer.should_stop() for _ in range(4)] == [False, False, True, True]


def test_a_subclass_overrides_run_and_close(wrapped: Any, session: Any, x: Any, trace: Any) -> None:
    class Mine(wrapped.WrappedSession):
        def run(self, *args: Any, **kwargs: Any) -> Any:
            trace.append("run")
            return super().run(*args, **kwargs)

        def close(self) -> None:
            trace.append("close")
            super().close()

    outer = wrapped.CoordinatedSession(wrapped.HookedSession(Mine(session), []), v1.train.Coordinator())
    assert outer.run(x, {x: 5}) == 5
    outer.close()
    assert trace == ["run", "close"]


@pytest.mark.parametrize("error", [tf.errors.AbortedError, tf.errors.UnavailableError])
def test_closing_hides_a_preemption(wrapped: Any, scripted: Any, tf_log: Any, error: Any) -> None:
    outer = wrapped.WrappedSession(scripted(close_error=error(None, None, "gone")))
    outer.close()
    assert outer.should_stop()
    assert "An error occurred when attempting to close the session." in tf_log.messages[0]


def test_closing_shows_another_error(wrapped: Any, scripted: Any) -> None:
    outer = wrapped.WrappedSession(scripted(close_error=ValueError("no")))
    with pytest.raises(ValueError, match="no"):
        outer.close()
    assert outer.should_stop()


def test_wrapped_session_passes_arguments_on(wrapped: Any, scripted: Any) -> None:
    fake = scripted("result")
    assert wrapped.WrappedSession(fake).run("fetches", 2, options=3) == "result"
    assert fake.calls == [(("fetches", 2), {"options": 3})]


# CoordinatedSession.


def test_coordinators_stop_is_the_sessions(wrapped: Any, session: Any, x: Any) -> None:
    coord = v1.train.Coordinator()
    outer = wrapped.CoordinatedSession(session, coord)
    assert not outer.should_stop()
    coord.request_stop()
    assert outer.should_stop()
    assert outer.run(x) == 0


def test_a_failing_run_asks_nobody_to_stop(wrapped: Any, session: Any, x: Any) -> None:
    coord = v1.train.Coordinator()
    outer = wrapped.CoordinatedSession(session, coord)
    with pytest.raises(TypeError, match="None has invalid type"):
        outer.run([None])
    assert not coord.should_stop()
    assert not outer.should_stop()
    assert outer.run(x, {x: 2}) == 2


def test_closing_stops_the_threads(wrapped: Any, session: Any) -> None:
    coord = v1.train.Coordinator()
    threads = [threading.Thread(target=coord.wait_for_stop) for _ in range(3)]
    for thread in threads:
        coord.register_thread(thread)
        thread.start()
    outer = wrapped.CoordinatedSession(session, coord)
    assert all(thread.is_alive() for thread in threads)
    outer.close()
    assert not any(thread.is_alive() for thread in threads)
    assert coord.should_stop()
    assert outer.should_stop()


def test_closing_gives_threads_the_grace_period(wrapped: Any, session: Any, tf_log: Any) -> None:
    coord, release = v1.train.Coordinator(), threading.Event()
    thread = threading.Thread(target=release.wait, name="laggard")
    coord.register_thread(thread)
    thread.start()
    try:
        wrapped.CoordinatedSession(session, coord, stop_grace_period_secs=0.01).close()
        assert thread.is_alive()
        assert "Coordinator stopped with threads still running: laggard" in tf_log.messages
    finally:
        release.set()
        thread.join()


def test_a_threads_error_comes_out_of_should_stop_and_close(wrapped: Any, scripted: Any, report: Any) -> None:
    fake = scripted("result", close_error=ValueError("hidden by the thread's"))
    coord = v1.train.Coordinator()
    outer = wrapped.CoordinatedSession(fake, coord)
    report(coord, KeyError("in a thread"))
    assert outer.run("fetches") == "result"
    for _ in range(2):
        with pytest.raises(KeyError, match="in a thread"):
            outer.should_stop()
    with pytest.raises(KeyError, match="in a thread"):
        outer.close()
    assert fake.calls[-1] == "close"


def test_coordinated_close_hides_the_sessions_error(wrapped: Any, scripted: Any) -> None:
    outer = wrapped.CoordinatedSession(scripted(close_error=ValueError("hidden")), v1.train.Coordinator())
    outer.close()
    assert outer.should_stop()


@pytest.mark.parametrize("raised", ["run", "thread"])
def test_which_error_a_failing_run_raises(wrapped: Any, scripted: Any, aborted: Any, report: Any, raised: str) -> None:
    """The run's own, but for a preemption that a thread has reported: that one is the cause."""
    coord = v1.train.Coordinator()
    report(coord, aborted("in a thread") if raised == "thread" else KeyError("in a thread"))
    outer = wrapped.CoordinatedSession(scripted(ValueError("in the run")), coord)
    error, text = (tf.errors.AbortedError, "in a thread") if raised == "thread" else (ValueError, "in the run")
    with pytest.raises(error, match=text):
        outer.run("fetches")


def test_a_preempted_run_raises_its_own_error(wrapped: Any, scripted: Any, aborted: Any, report: Any) -> None:
    coord = v1.train.Coordinator()
    report(coord, tf.errors.UnavailableError(None, None, "in a thread"))
    with pytest.raises(tf.errors.AbortedError, match="in the run"):
        wrapped.CoordinatedSession(scripted(aborted("in the run")), coord).run("fetches")


def test_a_failing_runs_traceback_leads_to_where_it_failed(wrapped: Any, scripted: Any, report: Any) -> None:
    coord = v1.train.Coordinator()
    report(coord, KeyError("in a thread"))
    outer = wrapped.CoordinatedSession(scripted(ValueError("in the run")), coord)
    with pytest.raises(ValueError) as raised:
        outer.run("fetches")
    assert raised.traceback[-1].name == "run"
    assert raised.traceback[-1].path.name == "conftest.py"
    assert raised.value.__cause__ is None
