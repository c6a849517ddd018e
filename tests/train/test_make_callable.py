"""make_callable of the monitored sessions: a step with hooks, as `run` has it, for sets of fetches that take turns."""

from __future__ import annotations

from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

import fastsup
from fastsup import train

v1 = tf.compat.v1


@pytest.fixture(params=["MonitoredSession", "SingularMonitoredSession", "MonitoredTrainingSession"])
def open_session(request: pytest.FixtureRequest) -> Any:
    return getattr(train, request.param)


def by_run(session: Any, fetches: Any, feed_list: Any = None) -> Any:
    return lambda *args: session.run(fetches, dict(zip(feed_list or (), args, strict=True)))


def by_callable(session: Any, fetches: Any, feed_list: Any = None) -> Any:
    return session.make_callable(fetches, feed_list)


@pytest.fixture
def model(step: Any) -> Any:
    """A small agent: one set of fetches acts, another trains."""
    x = v1.placeholder(tf.float32, [None], name="x")
    scale = v1.placeholder(tf.float32, [], name="scale")
    w = v1.get_variable("w", initializer=1.0, use_resource=True)
    action = tf.reduce_sum(x) * w
    with tf.control_dependencies([step.op]):
        trained = w.assign_add(scale * tf.reduce_sum(x))
    return SimpleNamespace(step=step, x=x, scale=scale, action=action, trained=trained)


@pytest.mark.slow
@pytest.mark.parametrize("ask", [False, True], ids=["hooks on schedule", "a hook in every run"])
def test_the_same_as_run_in_turns(open_session: Any, model: Any, ask: bool, trace: Any) -> None:
    seen = []
    for make in (by_run, by_callable):
        log = type(trace)()
        hooks = [train.NanTensorHook(tf.constant(1.0)), train.StopAtStepHook(last_step=41)]
        if ask:
            hooks.append(log.hook("a", before_run=lambda *_: train.SessionRunArgs(model.step.read)))
        results = []
        with open_session(hooks=hooks) as session:
            act = make(session, {"action": model.action}, [model.x])
            learn = make(session, [model.trained, (model.step.op,)], (model.x, model.scale))
            plain = make(session, model.step.read)
            for _ in range(40):
                results += [act([1.0, 2.0]), learn([0.5, 0.5], 0.25), plain()]
        seen.append((results, list(log)))
    assert seen[0] == seen[1]
    assert seen[0][0][-1] == 40


Pair = namedtuple("Pair", ["first", "second"])


@pytest.mark.parametrize(
    "write",
    [
        lambda m: m.action, lambda m: [m.action], lambda m: (m.action, [m.action]), lambda m: {"a": {"b": m.action}},
        lambda m: Pair(m.action, m.step.read), lambda m: m.action.name, lambda m: m.step.op, lambda m: [],
    ],
)  # fmt: skip
def test_structures(model: Any, write: Any) -> None:
    with train.MonitoredSession() as session:
        fetches = write(model)
        function = session.make_callable(fetches, [model.x])
        for i in range(3):
            expected = session.run(fetches, {model.x: [i]})
            assert function([i]) == expected
            assert type(function([i])) is type(expected)


def test_what_is_fetched_is_settled_when_it_is_made(model: Any) -> None:
    fetches = {"a": [model.action]}
    feeds = [model.x]
    with train.MonitoredSession() as session:
        function = session.make_callable(fetches, feeds)
        fetches["b"] = model.action
        fetches["a"].append(model.action)
        feeds.clear()
        for _ in range(3):
            assert function([2.0]) == {"a": [2.0]}


def test_keeps_its_plan(model: Any) -> None:
    """As many sets of fetches in turns as one likes: no plan is made again."""
    with train.MonitoredSession() as session:
        functions = [session.make_callable({str(i): [model.action] * i}, [model.x]) for i in range(1, 8)]
        for function in functions * 2:
            function([1.0])
        before = session.raw_session().plan_cache_info()
        for function in functions * 3:
            function([1.0])
        after = session.raw_session().plan_cache_info()
        assert after.misses == before.misses
        assert after.currsize == before.currsize


def test_finds_the_new_session(model: Any, trace: Any) -> None:
    def fail(number: int, *_: Any) -> None:
        if number in (3, 4, 9):
            raise tf.errors.AbortedError(None, None, "away")

    with train.MonitoredSession(hooks=[trace.hook("a", before_run=fail)]) as session:
        act, learn = session.make_callable(model.action, [model.x]), session.make_callable(model.step.op)
        for i in range(5):
            assert act([i]) == i
            learn()
        assert session.run(model.step.global_step) == 2
    assert trace.count("a.after_create_session") == 4


def test_graphs_that_grow(graph: Any) -> None:
    x = tf.constant(2.0)
    with fastsup.Session() as raw:
        creator = type("Creator", (), {"create_session": lambda self: raw})()
        with train.MonitoredSession(creator) as session:
            function = session.make_callable([x])
            assert function() == [2.0]
            y = x * 3.0
            other = session.make_callable([y])
            assert (other(), function()) == ([6.0], [2.0])
            raw._drop_plans()
            assert (other(), function()) == ([6.0], [2.0])


def test_options(model: Any) -> None:
    with train.MonitoredSession() as session:
        function = session.make_callable(model.action, [model.x], accept_options=True)
        metadata = v1.RunMetadata()
        options = v1.RunOptions(output_partition_graphs=True)
        assert function([1.0], options=options, run_metadata=metadata) == 1.0
        assert len(metadata.partition_graphs) == 1
        assert function([3.0]) == 3.0
        with pytest.raises(TypeError, match="accept_options=True"):
            session.make_callable(model.action, [model.x])([1.0], options=options)
        with pytest.raises(TypeError, match="timeout"):
            function([1.0], timeout=3)


def test_wrong_arguments(open_session: Any, model: Any) -> None:
    with open_session() as session:
        with pytest.raises(TypeError, match=r"Argument `feed_list` must be a list or tuple"):
            session.make_callable(model.action, model.x)
        with pytest.raises(TypeError):
            session.make_callable(None)
        with pytest.raises(ValueError, match="nothing"):
            session.make_callable("nothing:0")
        function = session.make_callable(model.action, [model.x])
        for arguments in ([], [[1.0], [2.0]]):
            with pytest.raises(TypeError, match="takes 1 values"):
                function(*arguments)
        with pytest.raises(ValueError, match="Cannot feed value of shape"):
            function(3.0)
        assert function([3.0]) == 3.0
    for call in (lambda: function([1.0]), lambda: session.make_callable(model.action)):
        with pytest.raises(RuntimeError, match=r"^Attempted to use a closed Session\.$"):
            call()


def test_after_a_stop(model: Any) -> None:
    with train.MonitoredSession(hooks=[train.StopAtStepHook(last_step=1)]) as session:
        function = session.make_callable(model.step.op)
        function()
        with pytest.raises(RuntimeError, match="Run called even after should_stop requested"):
            function()


def test_a_subclass_that_overrides_run(model: Any, trace: Any) -> None:
    class Mine(train.MonitoredSession):
        def run(self, *args: Any, **kwargs: Any) -> Any:
            trace.append("run")
            return super().run(*args, **kwargs)

    with Mine() as session:
        assert session.make_callable(model.action, [model.x])([2.0]) == 2.0
    assert trace == ["run"]


def test_a_session_of_somebody_elses_making(model: Any) -> None:
    theirs = type("Theirs", (), {"create_session": lambda self: v1.Session()})()
    with train.MonitoredSession(theirs) as session:
        session.raw_session().run(v1.global_variables_initializer())
        function = session.make_callable([model.action], [model.x])
        assert [function([i]) for i in range(3)] == [[0.0], [1.0], [2.0]]
