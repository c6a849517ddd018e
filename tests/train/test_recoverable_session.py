"""RecoverableSession: it makes a new session when its own is preempted, and runs the step again."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

v1 = tf.compat.v1


def fail(error: BaseException) -> Any:
    raise error


class Creator:
    def __init__(self, *sessions: Any) -> None:
        self.sessions = list(sessions)
        self.made = 0

    def create_session(self) -> Any:
        self.made += 1
        session = self.sessions.pop(0)
        return fail(session) if isinstance(session, BaseException) else session


def test_delegates(impl: Any, wrapped: Any, graph: Any) -> None:
    x = v1.placeholder_with_default(0, [], name="x")
    with impl.Session() as session:
        outer = wrapped.RecoverableSession(Creator(session))
        assert outer.graph is graph
        assert outer.sess_str == session.sess_str
        assert outer.run(x, feed_dict={x: 51}) == 51


def test_recovers_with_the_next_session(wrapped: Any, scripted: Any, aborted: Any) -> None:
    creator = Creator(
        scripted("1", aborted(), close_error=aborted()),
        scripted("2", "3", tf.errors.UnavailableError(None, None, "away")),
        aborted(),
        scripted("4", ValueError("an end")),
    )
    sessions = [session for session in creator.sessions if isinstance(session, scripted)]
    outer = wrapped.RecoverableSession(creator)
    assert [outer.run(f"fetches {n}", {n: n}) for n in range(1, 5)] == ["1", "2", "3", "4"]
    with pytest.raises(ValueError, match="an end"):
        outer.run("fetches 5")
    assert creator.made == 4
    asked = [[args[0] for args, _ in (call for call in fake.calls if call != "close")] for fake in sessions]
    assert asked == [
        ["fetches 1", "fetches 2"], ["fetches 2", "fetches 3", "fetches 4"], ["fetches 4", "fetches 5"]
    ]  # fmt: skip
    assert [fake.calls.count("close") for fake in sessions] == [1, 1, 0]


def test_the_cause_is_logged_before_the_session_is_closed(
    wrapped: Any, scripted: Any, aborted: Any, tf_log: Any
) -> None:
    """To close the session of a cluster that has lost a task may take a while."""
    lost = scripted(aborted("ps 1 is gone"))
    close, texts = lost.close, []

    def close_slowly() -> None:
        texts.append(tf_log.text)
        close()

    lost.close = close_slowly
    assert wrapped.RecoverableSession(Creator(lost, scripted("again"))).run("fetches") == "again"
    (before_close,) = texts
    assert "ps 1 is gone" in before_close


def test_passes_arguments_by_name(wrapped: Any, scripted: Any) -> None:
    fake = scripted("result")
    wrapped.RecoverableSession(Creator(fake)).run("fetches", "feeds", "options", "metadata")
    assert fake.calls == [(("fetches",), {"feed_dict": "feeds", "options": "options", "run_metadata": "metadata"})]


def test_running_after_close_makes_a_new_session(wrapped: Any, scripted: Any) -> None:
    creator = Creator(scripted(), scripted("again"))
    outer = wrapped.RecoverableSession(creator)
    outer.close()
    assert outer.should_stop()
    assert outer.run("fetches") == "again"
    assert creator.made == 2


def failing_check(scripted: Any, error: Exception) -> Any:
    """A wrapped session whose _check_stop fails."""
    session = scripted("result")
    session._check_stop = lambda: fail(error)
    return session


@pytest.mark.parametrize("error", [tf.errors.AbortedError, tf.errors.UnavailableError])
def test_should_stop_recovers(wrapped: Any, scripted: Any, tf_log: Any, error: Any) -> None:
    broken = failing_check(scripted, error(None, None, "gone"))
    creator = Creator(broken, scripted("recovered"))
    outer = wrapped.RecoverableSession(creator)
    assert outer.should_stop() is False
    assert broken.calls == ["close"]
    assert outer.run("fetches") == "recovered"
    assert "An error was raised while considering whether the session is complete." in tf_log.messages[0]


def test_should_stop_takes_another_error_for_yes(wrapped: Any, scripted: Any) -> None:
    outer = wrapped.RecoverableSession(Creator(failing_check(scripted, ValueError("no"))))
    assert outer.should_stop() is True
    assert outer.run("fetches") == "result"


def test_recovers_from_a_preemption_in_a_thread(wrapped: Any, scripted: Any, aborted: Any, report: Any) -> None:
    coords = [v1.train.Coordinator() for _ in range(2)]
    creator = Creator(
        wrapped.CoordinatedSession(scripted(ValueError("because of it")), coords[0]),
        wrapped.CoordinatedSession(scripted("recovered"), coords[1]),
    )
    outer = wrapped.RecoverableSession(creator)
    report(coords[0], aborted())
    assert outer.run("fetches") == "recovered"
    assert creator.made == 2


def test_a_threads_error_ends_the_recovery(wrapped: Any, scripted: Any, aborted: Any, report: Any) -> None:
    """Recovering closes the session, and closing it raises what its thread has reported."""
    coord = v1.train.Coordinator()
    creator = Creator(wrapped.CoordinatedSession(scripted(aborted()), coord), scripted("recovered"))
    outer = wrapped.RecoverableSession(creator)
    report(coord, KeyError("in a thread"))
    with pytest.raises(KeyError, match="in a thread"):
        outer.run("fetches")
    assert creator.made == 1


def test_the_constructor_can_be_replaced(impl: Any, wrapped: Any, graph: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def constructor(self: Any, sess_creator: Any) -> None:
        seen.append(sess_creator)
        original(self, sess_creator)

    original = wrapped.RecoverableSession.__init__
    monkeypatch.setattr(wrapped.RecoverableSession, "__init__", constructor)
    with impl.train.MonitoredSession():
        pass
    assert len(seen) == 1
