"""Sessions that are closed, empty, out of time or asked for the impossible."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import tensorflow as tf

tf1 = tf.compat.v1


@pytest.mark.parametrize("limit", ["session", "run"])
def test_deadline(alike: Any, limit: str) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        queue = tf1.FIFOQueue(3, tf.float32, [[]], name="queue")
        taken = queue.dequeue(name="taken")
        put = queue.enqueue([1.5])
        config = tf1.ConfigProto(operation_timeout_in_ms=100 if limit == "session" else 0)
        options = tf1.RunOptions(timeout_in_ms=100) if limit == "run" else None
        with new_session(config=config) as session:
            for _ in range(2):
                attempt(session.run, taken, options=options)
                attempt(session.run, [taken], options=options)
                session.run(put)
                attempt(session.run, taken, options=options)

    assert alike(program).errors == ["DeadlineExceededError", "DeadlineExceededError", ""] * 2


def test_closed_session(alike: Any) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        x = tf1.placeholder_with_default(1.5, [], name="x")
        y = x * 2.0
        session = new_session()
        run_y = session.make_callable(y)
        run_fed = session.make_callable(y, [x])

        def attempt_all() -> None:
            for fetches in (y, [y], None, [], "nothing"):
                attempt(session.run, fetches)
            attempt(session.run, y, {x: 1.0})
            attempt(session.run, y, {x: "text"})
            attempt(run_y)
            attempt(run_fed, 2.5)

        attempt_all()
        attempt(session.close)
        attempt(session.close)
        attempt_all()
        attempt(session.list_devices)
        attempt(session.partial_run_setup, [y], [x])
        attempt(session.partial_run, "handle", [y], {x: 1.0})
        attempt(session.make_callable(y, [x]), 1.0)

    raised, closed = alike(program).errors, "RuntimeError"
    assert raised[:9] == ["", "", "TypeError", "", "ValueError", "", "ValueError", "", ""]
    assert raised[9:20] == ["", "", *[closed] * 7, "CancelledError", closed]
    assert raised[20:] == ["CancelledError", closed, closed, closed]


def test_closed_session_makes_no_callable_that_works(alike: Any) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        y = tf.constant(1.5) * 2.0
        session = new_session()
        attempt(session.run, y)
        session.close()
        run_y = attempt(session.make_callable, y)
        attempt(run_y)

    assert alike(program).errors == ["", "", "CancelledError"]


def test_empty_graph(alike: Any) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        with new_session() as session:
            for fetches in ([], "x:0", None, {}):
                attempt(session.run, fetches)
                attempt(session.run, fetches, {"x:0": 1})
            attempt(session.run, tf.constant(1.5))
            attempt(session.run, [])
            attempt(session.run, "x:0")

    assert alike(program).errors == ["RuntimeError"] * 8 + ["", "", "ValueError"]


def test_bad_arguments(alike: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        tf.constant(1.5)
        attempt(new_session, graph="graph")
        attempt(new_session, graph=0)
        attempt(new_session, config={"allow_soft_placement": True})
        attempt(new_session, config=tf1.GPUOptions())
        attempt(new_session, target=37)
        attempt(new_session, target=tf1.ConfigProto())
        attempt(new_session, target="nonsense://nowhere")
        attempt(new_session, graph=0, target=37, config=1.5)
        attempt(new_session, unknown=1)

    # A session that was never made complains when it is collected.
    monkeypatch.setattr("sys.unraisablehook", lambda unraisable: None)
    raised = alike(program).errors
    gc.collect()
    assert raised == [*["TypeError"] * 6, "NotFoundError", "TypeError", "TypeError"]


@pytest.mark.parametrize(
    ("arguments", "error", "texts"),
    [
        ({"executor": "nonsense"}, ValueError, ["executor", "'nonsense'", "auto", "thread_pool", "inline"]),
        ({"executor": ""}, ValueError, ["executor", "''", "single_threaded"]),
        ({"executor": None}, TypeError, ["executor", "None"]),
        ({"executor": 3}, TypeError, ["executor", "3", "int"]),
        ({"executor": b"auto"}, TypeError, ["executor", "b'auto'", "bytes"]),
        ({"nope": 1}, TypeError, ["Session.__init__() got an unexpected keyword argument 'nope'"]),
        ({"max_plans": 2**70}, TypeError, ["unexpected keyword argument 'max_plans'"]),
    ],
)
def test_bad_argument_of_ours(
    both: Any,
    graph: tf.Graph,
    monkeypatch: pytest.MonkeyPatch,
    arguments: Any,
    error: type[Exception],
    texts: list[str],
) -> None:
    """The error names argument, value and remedy, and nothing half-made complains when it is collected."""
    complaints: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", lambda unraisable: complaints.append(unraisable.exc_value))
    with pytest.raises(error) as raised:
        both.fastsup.Session(**arguments)
    assert [text for text in texts if text not in str(raised.value)] == []
    raised.value.__traceback__ = None
    del raised
    assert complaints == []
