"""The list of hooks of a session: what it may be, the same hook twice in it, and one put in another's place."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from fastsup.train.schedule import ScheduledHook

v1 = tf.compat.v1


class Iterable:
    """Hooks in something that can be gone through, and nothing else."""

    def __init__(self, *hooks: Any) -> None:
        self.hooks = hooks

    def __iter__(self) -> Iterator[Any]:
        return iter(self.hooks)


@pytest.mark.parametrize("make", [Iterable, lambda *hooks: hooks, lambda *hooks: iter(hooks)])
def test_hooks_in_something_else_than_a_list(impl: Any, step_tensor: Any, trace: Any, make: Callable[..., Any]) -> None:
    """An iterator is at its end when the first run comes: its hooks are begun, and no more."""
    hooks = make(trace.hook("a"), trace.hook("b"))
    with impl.train.MonitoredSession(hooks=hooks) as session:
        for _ in range(2):
            session.run(step_tensor)
    expected = ["a.begin", "b.begin"]
    if not isinstance(hooks, Iterator):
        run = ["a.before_run", "b.before_run", "a.after_run", "b.after_run"]
        expected += ["a.after_create_session", "b.after_create_session", *run, *run, "a.end", "b.end"]
    assert trace == expected


@pytest.mark.parametrize("hooked", ["Hook", "quiet"])
def test_a_hook_in_the_place_of_another(impl: Any, step_tensor: Any, hooked: str) -> None:
    log: list[str] = []

    class Hook(v1.train.SessionRunHook):  # type: ignore[misc]
        def __init__(self, name: str) -> None:
            self.name = name

        def after_run(self, run_context: Any, run_values: Any) -> None:
            log.append(self.name)

    hooks = [Hook("x") if hooked == "Hook" else v1.train.SessionRunHook(), Hook("y")]
    with impl.train.MonitoredSession(hooks=hooks) as session:
        session.run(step_tensor)
        hooks[0] = Hook("new")
        session.run(step_tensor)
        hooks.reverse()
        session.run(step_tensor)
    assert log == (["x"] if hooked == "Hook" else []) + ["y", "new", "y", "y", "new"]


@pytest.mark.parametrize(
    ("asked", "results", "added"),
    [
        (["a", None], [2.0, 2.0], 0),
        (["add", "a"], [2.0, 2.0], 0),
        ([None, "a"], [2.0, 2.0], 0),
        (["a", "add"], [1, 1], 1),
    ],
)
def test_what_a_hook_asks_for_that_is_there_twice(
    impl: Any, graph: Any, asked: list[str | None], results: list[Any], added: int
) -> None:
    """What it asks for last counts, for both of its calls; what it has asked for before isn't run."""
    v1.train.get_or_create_global_step()
    a, count = tf.constant(2.0), v1.get_variable("count", initializer=0)
    fetches = {"a": a, "add": count.assign_add(1)}
    got = []

    class Hook(v1.train.SessionRunHook):  # type: ignore[misc]
        calls = 0

        def before_run(self, run_context: Any) -> Any:
            wanted = asked[self.calls % 2]
            self.calls += 1
            return None if wanted is None else v1.train.SessionRunArgs(fetches[wanted])

        def after_run(self, run_context: Any, run_values: Any) -> None:
            got.append(run_values.results)

    hook = Hook()
    with impl.train.MonitoredSession(hooks=[hook, hook]) as session:
        session.run(a)
        assert session.run_step_fn(lambda step_context: step_context.session.run(count)) == added
    assert got == results


def test_a_standard_hook_twice(impl: Any, step_tensor: Any, tf_log: Any) -> None:
    """It is called twice in every run, and counts both."""
    logs = impl.train.LoggingTensorHook([step_tensor], every_n_iter=3, formatter=lambda values: "logged")
    with impl.train.MonitoredSession(hooks=[logs, logs]) as session:
        for _ in range(6):
            session.run(step_tensor)
    assert sum("logged" in line for line in tf_log.messages) == 6


@pytest.mark.parametrize("last_step", [math.inf, math.nan, 2**63, 10**30, 2.5, -math.inf, np.array([3])])
def test_a_stop_at_any_number(impl: Any, step_tensor: Any, last_step: Any) -> None:
    runs = 0
    with impl.train.MonitoredSession(hooks=[impl.train.StopAtStepHook(last_step=last_step)]) as session:
        while runs < 6 and not session.should_stop():
            session.run(step_tensor)
            runs += 1
    assert runs == {2.5: 3, -math.inf: 1}.get(last_step, 6) if not isinstance(last_step, np.ndarray) else runs == 3


def test_a_loss_that_is_none(impl: Any, step_tensor: Any) -> None:
    with impl.train.MonitoredSession(hooks=[impl.train.NanTensorHook(None)]) as session:
        with pytest.raises(TypeError, match="isnan"):
            session.run(step_tensor)


@pytest.mark.parametrize(
    "options", [None, v1.RunOptions(trace_level=v1.RunOptions.SOFTWARE_TRACE)], ids=["", "options"]
)
@pytest.mark.parametrize("hashable", [True, False])
def test_hooks_that_are_equal(both: Any, step_tensor: Any, hashable: bool, options: Any) -> None:
    """Each gets what it has asked for. In TensorFlow one dictionary has the results of both, by hook."""

    class Equal(v1.train.SessionRunHook):  # type: ignore[misc]
        def __init__(self, fetches: Any) -> None:
            self.fetches = fetches
            self.got: list[Any] = []

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Equal)

        __hash__ = (lambda self: 1) if hashable else None  # type: ignore[assignment]

        def before_run(self, run_context: Any) -> Any:
            return v1.train.SessionRunArgs(self.fetches, options=options)

        def after_run(self, run_context: Any, run_values: Any) -> None:
            self.got.append(run_values.results)

    hooks = [Equal(tf.constant(1)), Equal([tf.constant(2)])]
    with both.fastsup.train.MonitoredSession(hooks=hooks) as session:
        for _ in range(3):
            session.run(step_tensor)
    assert [hook.got for hook in hooks] == [[1] * 3, [[2]] * 3]


def test_a_run_within_a_run_is_counted_once(impl: Any, step_tensor: Any, tf_log: Any) -> None:
    """A hook runs the session in its `before_run`: the other hooks see two runs, one in the other."""

    class RunsMore(v1.train.SessionRunHook):  # type: ignore[misc]
        is_within = False

        def before_run(self, run_context: Any) -> None:
            if not self.is_within:
                self.is_within = True
                session.run(step_tensor)
                self.is_within = False

    logged: list[int] = []
    hook = impl.train.LoggingTensorHook(
        {"step": step_tensor}, every_n_iter=5, formatter=lambda values: logged.append(int(values["step"])) or ""
    )
    with impl.train.MonitoredSession(hooks=[RunsMore(), hook]) as session:
        for _ in range(10):
            session.run(step_tensor)
    assert hook._iter_count == 20
    assert len(logged) == 4


def test_a_schedule_that_another_hook_changes_in_the_run(impl: Any, step_tensor: Any) -> None:
    """It holds for the run that is under way, also for a hook that is called after it alone."""

    class Ends(v1.train.SessionRunHook):  # type: ignore[misc]
        runs = 0

        def after_run(self, run_context: Any, run_values: Any) -> None:
            self.runs += 1
            if self.runs == 3:
                stop._last_step = 1

    ends, stop = Ends(), impl.train.StopAtStepHook(last_step=100)
    with impl.train.MonitoredSession(hooks=[ends, stop]) as session:
        while not session.should_stop():
            session.run(step_tensor)
    assert ends.runs == 3


def session_around(impl: Any, hooked_session: Any, hooks: list[Any]) -> Any:
    """A session that calls these hooks, of which no list is made: the test changes them."""
    session = impl.Session()
    session.run(v1.global_variables_initializer())
    return hooked_session(session, hooks)


@pytest.mark.parametrize("kind", [list, type("Hooks", (list,), {})])
def test_a_hook_that_leaves_the_list_and_comes_back(impl: Any, graph: Any, wrapped: Any, kind: type[list[Any]]) -> None:
    """It counts the runs that it was in the list for."""
    step = v1.train.get_or_create_global_step()
    hook = impl.train.LoggingTensorHook({"step": step}, every_n_iter=5)
    hook.begin()
    hooks = kind([hook])
    session = session_around(impl, wrapped.HookedSession, hooks)
    for _ in range(2):
        session.run(step)
    hooks.clear()
    for _ in range(10):
        session.run(step)
    hooks.append(hook)
    session.run(step)
    if impl.name == "fastsup":
        session._sync_hooks()
    assert hook._iter_count == 3


def test_an_after_run_hook_in_a_graph_whose_step_nobody_reads(graph: Any, both: Any) -> None:
    class ByRun(ScheduledHook, v1.train.SessionRunHook):  # type: ignore[misc]
        def after_run(self, run_context: Any, run_values: Any) -> None:
            results.append(run_values.results)

        def _schedule(self, run: int, step_read: Any) -> bool:
            self._decide_after_run()
            self.due_at_run(1)
            return True

    results: list[Any] = []
    hook = ByRun()
    session = session_around(both.fastsup, both.fastsup.train.HookedSession, [hook])
    constant = tf.constant(1)
    for _ in range(3):
        session.run(constant)
    assert results == [None, None]


def test_hooks_that_another_thread_changes_while_a_plan_is_made(graph: Any, both: Any) -> None:
    losses = [tf.constant(1.0), tf.constant(2.0)]
    hooks = [both.fastsup.train.NanTensorHook(loss) for loss in losses]
    for hook in hooks:
        hook.begin()
    listed = hooks[:1]
    session = session_around(both.fastsup, both.fastsup.train.HookedSession, listed)
    inner = session.raw_session()
    first, second = tf.constant(3.0), tf.constant(4.0)
    make_plan = inner.maker.make

    def make_plan_slowly(session: Any, fetches: Any, *arguments: Any) -> Any:
        plan = make_plan(session, fetches, *arguments)
        if isinstance(fetches, list) and len(listed) == 1:
            listed.append(hooks[1])
            thread = threading.Thread(target=session.run, args=(first,))
            thread.start()
            thread.join()
        return plan

    session.run(first)
    inner.maker.make = make_plan_slowly
    assert session.run(second) == 4.0
    assert len(listed) == 2
