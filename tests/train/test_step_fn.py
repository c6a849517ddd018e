"""run_step_fn: a step written by the program, with hooks where it asks for them."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import tensorflow as tf

v1 = tf.compat.v1


@pytest.fixture(params=["MonitoredSession", "SingularMonitoredSession"])
def open_session(impl: Any, request: pytest.FixtureRequest) -> Any:
    return getattr(impl.train, request.param)


@pytest.fixture
def x(graph: Any) -> Any:
    return v1.placeholder_with_default(1.0, [], name="x")


def test_returns_what_step_fn_returns(open_session: Any, x: Any, trace: Any, raw_session: Any) -> None:
    def step_fn(step_context: Any) -> Any:
        assert step_context.session is raw_session(session)
        value = step_context.session.run(x, {x: 2.0})
        assert trace[-1] == "a.after_create_session"  # A run in the raw session is seen by no hook.
        return [value, step_context.run_with_hooks(x, {x: 3.0}), step_context.run_with_hooks(fetches=x)]

    with open_session(hooks=[trace.hook("a")]) as session:
        assert session.run_step_fn(step_fn) == [2.0, 3.0, 1.0]
        assert not session.should_stop()
    assert trace == ["a.begin", "a.after_create_session", *["a.before_run", "a.after_run"] * 2, "a.end"]


def test_run_with_hooks_takes_what_run_takes(open_session: Any, x: Any, trace: Any) -> None:
    hook = trace.hook("a")
    options, metadata = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), v1.RunMetadata()

    def step_fn(step_context: Any) -> Any:
        return step_context.run_with_hooks(x, feed_dict={x: 2.0}, options=options, run_metadata=metadata)

    with open_session(hooks=[hook]) as session:
        assert session.run_step_fn(step_fn) == 2.0
    assert hook.arguments["after_run"][0][1].options is options
    assert hook.arguments["after_run"][0][1].run_metadata is metadata


def test_step_fn_needs_no_run(open_session: Any, x: Any) -> None:
    with open_session() as session:
        assert session.run_step_fn(lambda step_context: None) is None
        assert session.run_step_fn(lambda step_context: "value") == "value"


class Stepper:
    """Owns a step function."""

    def method(self, step_context: Any) -> Any:
        return self, step_context.run_with_hooks("x:0")

    def two(self, step_context: Any, other: Any) -> None:
        raise AssertionError

    def __call__(self, step_context: Any) -> Any:
        return self, step_context.run_with_hooks("x:0")


def test_methods_callables_and_partials(open_session: Any, x: Any) -> None:
    stepper = Stepper()

    def with_more(first: str, step_context: Any) -> Any:
        return first, step_context.run_with_hooks("x:0")

    with open_session() as session:
        assert session.run_step_fn(stepper.method) == (stepper, 1.0)
        assert session.run_step_fn(stepper) == (stepper, 1.0)
        assert session.run_step_fn(functools.partial(with_more, "bound")) == ("bound", 1.0)


WRONG = [
    (lambda: None, "()"),
    (lambda context: None, "('context',)"),
    (lambda step_context, other: None, "('step_context', 'other')"),
    (lambda other, step_context: None, "('other', 'step_context')"),
    (Stepper().two, "('step_context', 'other')"),
]


def test_what_is_no_step_function(open_session: Any, x: Any, trace: Any) -> None:
    with open_session(hooks=[trace.hook("a")]) as session, pytest.raises(TypeError, match="unsupported callable"):
        session.run_step_fn(5)


@pytest.mark.parametrize(("step_fn", "arguments"), WRONG, ids=[text for _, text in WRONG[:-1]] + ["method"])
def test_wrong_signature(open_session: Any, x: Any, trace: Any, step_fn: Any, arguments: str) -> None:
    with open_session(hooks=[trace.hook("a")]) as session:
        with pytest.raises(ValueError) as raised:
            session.run_step_fn(step_fn)
        assert session.run(x) == 1.0
    assert str(raised.value).startswith(
        "`step_fn` may either have one `step_context` argument, or `self` and `step_context` arguments if it's an "
        f"instance method. Got {arguments} instead."
    )


def test_request_stop_raises_stop_iteration(open_session: Any, x: Any) -> None:
    def step_fn(step_context: Any) -> None:
        step_context.run_with_hooks(x)
        step_context.request_stop()

    session = open_session()
    with pytest.raises(StopIteration, match=r"^step_fn has requested the iterations to stop\.$"):
        session.run_step_fn(step_fn)
    assert not session.should_stop()  # The exception is the stop: whoever catches it may go on.
    assert session.run(x) == 1.0
    session.close()


def test_request_stop_ends_a_loop(open_session: Any, graph: Any, trace: Any, counting_step: Any) -> None:
    step = counting_step()

    def step_fn(step_context: Any) -> Any:
        value, _ = step_context.run_with_hooks([step.read, step.op])
        if value == 2:
            step_context.request_stop()

    with open_session(hooks=[trace.hook("a")]) as session:
        while not session.should_stop():
            session.run_step_fn(step_fn)
    assert trace.count("a.after_run") == 3
    assert trace[-1] == "a.end"


def test_request_stop_past_a_session_without_a_with(open_session: Any, x: Any, trace: Any) -> None:
    session = open_session(hooks=[trace.hook("a")])
    with pytest.raises(StopIteration):
        session.run_step_fn(lambda step_context: step_context.request_stop())
    assert trace == ["a.begin", "a.after_create_session"]
    session.close()
    assert trace[-1] == "a.end"


def test_a_hook_stops_the_session_from_run_with_hooks(open_session: Any, x: Any, trace: Any) -> None:
    hook = trace.hook("a", after_run=lambda number, context, _: context.request_stop())

    def step_fn(step_context: Any) -> Any:
        step_context.run_with_hooks(x)
        assert session.should_stop()
        assert step_context.session.run(x) == 1.0
        return step_context.run_with_hooks(x)

    with open_session(hooks=[hook]) as session:
        with pytest.raises(RuntimeError, match="Run called even after should_stop requested"):
            session.run_step_fn(step_fn)


def test_stop_asked_for_in_a_hook_ends_the_step(open_session: Any, x: Any, trace: Any) -> None:
    """As from session.run: hooks see the same whether the step is a function's or the session's."""

    def raise_stop(*_: Any) -> None:
        raise StopIteration("a hook's")

    with open_session(hooks=[trace.hook("a", after_run=raise_stop), trace.hook("b")]) as session:
        session.run_step_fn(lambda step_context: step_context.run_with_hooks(x))
        raise AssertionError("not reached")
    assert trace[-4:] == ["b.before_run", "a.after_run", "a.end", "b.end"]


# Recovery, of a MonitoredSession alone.


def aborted(*_: Any) -> None:
    raise tf.errors.AbortedError(None, None, "the server went away")


def test_step_fn_is_repeated_in_a_new_session(impl: Any, x: Any, trace: Any, raw_session: Any) -> None:
    hook = trace.hook("a")
    sessions = []

    def step_fn(step_context: Any) -> Any:
        sessions.append(step_context.session)
        trace.append("step_fn")
        if len(sessions) == 1:
            aborted()
        return step_context.run_with_hooks(x)

    with impl.train.MonitoredSession(hooks=[hook]) as session:
        assert session.run_step_fn(step_fn) == 1.0
        made = [arguments[0] for arguments in hook.arguments["after_create_session"]]
        assert made[-1] is raw_session(session)
    assert len(made) == len(sessions) == 2
    assert made[0] is not made[1]
    # TensorFlow gives the step function its first session again, which is closed by then.
    assert sessions[1] is made[0 if impl.name == "tensorflow" else 1]
    assert " ".join(trace) == (
        "a.begin a.after_create_session step_fn a.after_create_session step_fn a.before_run a.after_run a.end"
    )


@pytest.mark.parametrize("callback", ["before_run", "after_run"])
def test_a_hook_aborts_within_step_fn(impl: Any, x: Any, trace: Any, callback: str) -> None:
    hook = trace.hook("a", **{callback: lambda number, *_: aborted() if number == 0 else None})

    def step_fn(step_context: Any) -> Any:
        trace.append("step_fn")
        return step_context.run_with_hooks(x)

    with impl.train.MonitoredSession(hooks=[hook]) as session:
        assert session.run_step_fn(step_fn) == 1.0
    assert trace.count("step_fn") == 2
    assert trace.count("a.after_create_session") == 2


def test_singular_session_does_not_repeat_step_fn(impl: Any, x: Any, trace: Any) -> None:
    hook = trace.hook("a", before_run=aborted)
    with pytest.raises(tf.errors.AbortedError, match="the server went away"):
        with impl.train.SingularMonitoredSession(hooks=[hook]) as session:
            session.run_step_fn(lambda step_context: step_context.run_with_hooks(x))
    assert " ".join(trace) == "a.begin a.after_create_session a.before_run"
