"""HookedSession: what hooks ask a run for, and what they get from it."""

from __future__ import annotations

import tempfile
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import pytest
import tensorflow as tf

import fastsup.train

v1 = tf.compat.v1


def asking(train: Any, trace: Any, name: str, *arguments: Any) -> Any:
    """A hook that asks for the same in each run."""
    return trace.hook(name, before_run=lambda *_: train.SessionRunArgs(*arguments))


def results(hook: Any) -> list[Any]:
    return [values.results for _, values in hook.arguments["after_run"]]


def test_hooks_are_called_in_their_order(hooked: Any, graph: Any, trace: Any) -> None:
    x = tf.constant(1)
    session, outer = hooked(trace.hook("a"), trace.hook("b"))
    trace.clear()
    assert outer.run(x) == 1
    assert outer.run(x) == 1
    assert trace == ["a.before_run", "b.before_run", "a.after_run", "b.after_run"] * 2
    session.close()


def test_what_hooks_fetch(impl: Any, hooked: Any, graph: Any, trace: Any) -> None:
    """Each gets its own fetches back, in the structure in which it asked for them."""
    a, b = tf.constant(1, name="a"), tf.constant([2, 3], name="b")
    op = tf.no_op("op")
    asked = {
        "tensor": a,
        "name": "a:0",
        "operation": op,
        "operation's name": "op",
        "list": [a, op, "b:0"],
        "tuple": (a, b),
        "dict": {"x": a, "y": {"z": [b, op]}},
        "empty list": [],
        "empty dict": {},
        "args": impl.train.SessionRunArgs(a, b, op),
        "nothing": None,
    }
    hooks = {name: asking(impl.train, trace, name, fetches) for name, fetches in asked.items()}
    hooks["no request"] = trace.hook("no request")
    session, outer = hooked(*hooks.values())
    assert outer.run({"mine": b})["mine"].tolist() == [2, 3]
    plain = {name: session.run(fetches) for name, fetches in asked.items() if fetches is not None}
    for name, hook in hooks.items():
        (found,) = results(hook)
        assert repr(found) == repr(plain.get(name)), name
        assert type(found) is type(plain.get(name)), name
    session.close()


def test_hooks_and_caller_see_the_same_run(impl: Any, hooked: Any, graph: Any, trace: Any) -> None:
    random = tf.random.uniform([])
    hooks = [asking(impl.train, trace, name, {"r": random}) for name in "ab"]
    session, outer = hooked(*hooks)
    value = outer.run(random)
    assert results(hooks[0]) == results(hooks[1]) == [{"r": value}]
    session.close()


def test_requests_may_change_from_run_to_run(impl: Any, hooked: Any, graph: Any, trace: Any) -> None:
    x = v1.placeholder_with_default(0, [])
    requests = [
        impl.train.SessionRunArgs(x),
        None,
        impl.train.SessionRunArgs([x, x]),
        impl.train.SessionRunArgs(None, {x: 7}),
        impl.train.SessionRunArgs({"x": x}, {x: 8}),
        impl.train.SessionRunArgs(x),
    ]
    hook = trace.hook("a", before_run=lambda number, _: requests[number])
    session, outer = hooked(hook)
    assert [outer.run(x) for _ in requests] == [0, 0, 0, 7, 8, 0]
    assert results(hook) == [0, None, [0, 0], None, {"x": 8}, 0]
    session.close()


def test_a_request_looks_like_session_run_args(hooked: Any, graph: Any, trace: Any) -> None:
    x = v1.placeholder_with_default(0, [])
    request = SimpleNamespace(fetches=x, feed_dict={x: 5}, options=None)
    hook = trace.hook("a", before_run=lambda *_: request)
    session, outer = hooked(hook)
    assert outer.run([]) == []
    assert results(hook) == [5]
    wrong = trace.hook("b", before_run=lambda *_: [x])
    session, outer = hooked(wrong)
    with pytest.raises(AttributeError, match="'list' object has no attribute 'fetches'"):
        outer.run(x)
    session.close()


def test_a_hook_looks_like_a_hook(hooked: Any, graph: Any) -> None:
    hook = mock.Mock(spec=v1.train.SessionRunHook)
    hook.before_run.return_value = None
    x = tf.constant(1)
    session, outer = hooked(hook)
    assert outer.run(x) == 1
    assert [call[0] for call in hook.method_calls] == ["begin", "after_create_session", "before_run", "after_run"]
    session.close()


def test_the_same_hook_twice(impl: Any, hooked: Any, graph: Any, trace: Any) -> None:
    x = tf.constant(1)
    hook = asking(impl.train, trace, "a", x)
    session, outer = hooked(hook, hook)
    trace.clear()
    assert outer.run(x) == 1
    assert trace == ["a.before_run", "a.before_run", "a.after_run", "a.after_run"]
    assert results(hook) == [1, 1]
    session.close()


@pytest.mark.parametrize("callback", ["before_run", "after_run"])
def test_a_hook_asks_for_a_stop(hooked: Any, graph: Any, trace: Any, callback: str) -> None:
    x = tf.constant(1)

    def stop_at_second(number: int, context: Any, *_: Any) -> None:
        if number == 1:
            context.request_stop()

    session, outer = hooked(trace.hook("a", **{callback: stop_at_second}), trace.hook("b"))
    assert outer.run(x) == 1
    assert not outer.should_stop()
    assert outer.run(x) == 1
    assert outer.should_stop()
    assert trace[-1] == "b.after_run"
    trace.clear()
    with pytest.raises(RuntimeError, match=r"^Run called even after should_stop requested\."):
        outer.run(x)
    assert trace == []
    session.close()


def test_contexts_are_shared_by_hooks_of_a_run(hooked: Any, graph: Any, trace: Any) -> None:
    x = tf.constant(1)
    seen = []

    def after_run(number: int, context: Any, values: Any) -> None:
        seen.append(context.stop_requested)
        context.request_stop()

    hooks = [trace.hook("a", after_run=after_run), trace.hook("b", after_run=after_run)]
    session, outer = hooked(*hooks)
    outer.run(x)
    assert seen == [False, True]
    assert hooks[0].arguments["before_run"][0][0] is hooks[1].arguments["before_run"][0][0]
    assert hooks[0].arguments["before_run"][0][0].session is session
    values = [hook.arguments["after_run"][0][1] for hook in hooks]
    assert values[0].options is values[1].options
    assert values[0].run_metadata is values[1].run_metadata
    session.close()


def test_a_run_in_the_contexts_session_is_seen_by_no_hook(hooked: Any, graph: Any, trace: Any) -> None:
    x = v1.placeholder_with_default(0, [])
    values = []
    hook = trace.hook(
        "a",
        before_run=lambda _, context: values.append(context.session.run(x, {x: 1})),
        after_run=lambda _, context, __: values.append(context.session.run(x, {x: 2})),
    )
    session, outer = hooked(hook)
    assert outer.run(x, {x: 3}) == 3
    assert values == [1, 2]
    assert trace[-2:] == ["a.before_run", "a.after_run"]
    session.close()


def test_all_arguments_reach_the_wrapped_session(impl: Any, wrapped: Any, graph: Any, trace: Any) -> None:
    x = tf.constant([0])

    class Inner(wrapped.WrappedSession):
        def run(self, fetches: Any, **arguments: Any) -> Any:
            seen.update(arguments)
            return super().run(fetches)

    seen: dict[str, Any] = {}
    with impl.Session() as session:
        outer = wrapped.HookedSession(Inner(session), [trace.hook("a")])
        assert outer.run(x, feed_dict="feeds", options="options", run_metadata="metadata") == [0]
    assert seen == {"feed_dict": "feeds", "options": "options", "run_metadata": "metadata"}


def test_failing_run_calls_no_after_run(impl: Any, hooked: Any, graph: Any, trace: Any) -> None:
    x = tf.raw_ops.Assert(condition=tf.constant(False), data=["never"])
    y = tf.constant(1)
    hook = asking(impl.train, trace, "a", y)
    session, outer = hooked(hook)
    with pytest.raises(tf.errors.InvalidArgumentError, match="assertion failed"):
        outer.run(x)
    assert trace[-1] == "a.before_run"
    assert outer.run(y) == 1
    assert results(hook) == [1]
    session.close()


def test_a_hooks_bad_fetch_fails_the_run(impl: Any, hooked: Any, graph: Any, trace: Any) -> None:
    y = tf.constant(1)
    session, outer = hooked(asking(impl.train, trace, "a", "nothing:0"))
    with pytest.raises(ValueError, match="Argument `fetch` = nothing:0 cannot be interpreted as a Tensor"):
        outer.run(y)
    session.close()


def test_feeds_are_for_every_fetch_of_the_run(impl: Any, hooked: Any, graph: Any, trace: Any) -> None:
    x = v1.placeholder(tf.float32, [])
    hooks = [asking(impl.train, trace, "a", x, {x: 3.0}), asking(impl.train, trace, "b", [x * 2])]
    session, outer = hooked(*hooks)
    assert outer.run(x + 1) == 4.0
    assert results(hooks[0]) == [3.0]
    assert results(hooks[1]) == [[6.0]]
    session.close()


@pytest.mark.parametrize("failing", ["a Python hook", "a listener", "a watched value"])
def test_hooks_behind_one_that_fails_do_not_hear_of_the_run(
    impl: Any, hooked: Any, step: Any, trace: Any, tmp_path: Any, failing: str
) -> None:
    """Those before it count the run, those behind it don't: the program may go on, or recover with the same hooks."""
    loss = v1.placeholder_with_default(1.0, [])
    run, logged = 0, []

    def fail(number: int, *_: Any) -> None:
        if run == 1:
            raise ValueError("planned")

    def logs(name: str) -> Any:
        return impl.train.LoggingTensorHook(
            [step.read], every_n_iter=3, formatter=lambda _: logged.append((name, run)) or "."
        )

    hooks = {
        "a Python hook": lambda: trace.hook("a", after_run=fail),
        "a listener": lambda: impl.train.CheckpointSaverHook(
            str(tmp_path), save_steps=1, saver=v1.train.Saver([step.global_step]), save_graph_def=False,
            listeners=[trace.listener("l", after_save=fail)],
        ),
        "a watched value": lambda: impl.train.NanTensorHook(loss),
    }  # fmt: skip
    session, outer = hooked(logs("before"), hooks[failing](), logs("behind"))
    for run in range(8):
        if run == 1:
            with pytest.raises((ValueError, impl.train.NanLossDuringTrainingError)):
                outer.run(step.op, {loss: float("nan")} if failing == "a watched value" else None)
        else:
            outer.run(step.op)
    session.close()
    assert [n for name, n in logged if name == "before"] == [0, 3, 6]
    assert [n for name, n in logged if name == "behind"] == [0, 4, 7]


def test_a_run_that_hooks_always_add_to_is_compiled_only_with_what_they_add(graph: Any) -> None:
    x, y = tf.constant(1), tf.constant(2)

    class Asking(fastsup.train.SessionRunHook):
        def before_run(self, run_context: Any) -> Any:
            return fastsup.train.SessionRunArgs(y)

    with fastsup.train.SingularMonitoredSession(hooks=[Asking()]) as session:
        before = session.raw_session().plan_cache_info()
        assert [session.run(x) for _ in range(3)] == [1, 1, 1]
        assert session.run_loop(x, steps=3) == 1
        after = session.raw_session().plan_cache_info()
    assert after.currsize == before.currsize + 1
    assert after.misses == before.misses + 1


class Refusing(NamedTuple):
    """A named tuple whose class checks what it gets."""

    step: Any


class Checked(Refusing):
    def __new__(cls, step: Any) -> Any:
        if not tf.is_tensor(step) and step == 3:
            raise ValueError("refused")
        return super().__new__(cls, step)


def test_a_result_that_its_class_refuses_is_a_failed_run(impl: Any, graph: Any) -> None:
    """No `after_run` is called: a hook with a schedule isn't either."""
    step = v1.train.get_or_create_global_step()
    increment = v1.assign_add(step, 1)
    saved: list[int] = []

    class Listener(v1.train.CheckpointSaverListener):  # type: ignore[misc, name-defined]
        def before_save(self, session: Any, global_step_value: int) -> None:
            saved.append(int(global_step_value))

    with tempfile.TemporaryDirectory() as folder:
        hook = impl.train.CheckpointSaverHook(folder, save_steps=3, listeners=[Listener()])
        with impl.train.MonitoredSession(hooks=[hook]) as session:
            for _ in range(2):
                session.run(Checked(increment))
            with pytest.raises(ValueError, match="refused"):
                session.run(Checked(increment))
            before = list(saved)
            session.run(increment)
    assert before == [0]
