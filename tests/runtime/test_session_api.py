"""The session as an object: what it is, has, manages and can be asked, as with TensorFlow's Session."""

from __future__ import annotations

import gc
import inspect
import threading
import weakref
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

tf1 = tf.compat.v1


def test_is_a_session(impl: Any, graph: tf.Graph) -> None:
    session = impl.Session()
    assert isinstance(session, tf1.Session)
    assert issubclass(impl.Session, tf1.Session)
    assert impl.Session.__name__ == "Session"


def test_attributes(alike: Any) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        y = tf.constant(1.5, name="y") * 2.0
        for session in (new_session(), new_session("", y.graph, None), new_session(graph=y.graph, target="")):
            for _ in range(2):
                attempt(lambda session=session: session.graph is y.graph)
                attempt(lambda session=session: session.sess_str)
                attempt(lambda session=session: session.graph_def.SerializeToString(deterministic=True))
                attempt(lambda session=session: [(d.name, d.device_type) for d in session.list_devices()])
                session.run(y)
            session.remark = "mine"
            attempt(lambda session=session: session.remark)
            attempt(lambda session=session: setattr(session, "graph", None))

    assert alike(program).errors.count("") == 27


@pytest.mark.parametrize("name", ["run", "make_callable", "partial_run", "partial_run_setup", "close", "list_devices"])
def test_signatures(both: Any, name: str) -> None:
    expected = inspect.signature(getattr(both.tensorflow.Session, name))
    found = inspect.signature(getattr(both.fastsup.Session, name))
    assert [(p.name, p.kind, p.default) for p in found.parameters.values()] == [
        (p.name, p.kind, p.default) for p in expected.parameters.values()
    ]


def test_the_graph_is_not_touched(impl: Any, graph: tf.Graph) -> None:
    """Sessions add nothing to their graph, and so work with a finished one."""
    x = tf1.placeholder(tf.float32, [])
    v = tf1.get_variable("v", initializer=1.0)
    y = x * v
    init = tf1.global_variables_initializer()
    before = graph.as_graph_def(add_shapes=True)
    graph.finalize()
    with impl.Session() as session:
        session.run(init)
        for i in range(120):
            assert session.run([y], {x: i}) == [i]
            assert session.run(y, {"Placeholder:0": i}) == i
        assert session.make_callable([v])() == [1.0]
    assert graph.as_graph_def(add_shapes=True) == before


def test_default_session(impl: Any, graph: tf.Graph) -> None:
    v = tf1.get_variable("v", initializer=1.5)
    x = tf1.placeholder(tf.float32, name="x")
    y = v * x
    session = impl.Session()
    assert tf1.get_default_session() is None
    with session.as_default() as default:
        assert default is session
        assert tf1.get_default_session() is session
        v.initializer.run()
        for _ in range(3):
            assert y.eval({x: 2.0}) == 3.0
            assert v.eval() == 1.5
            assert v.op.run() is None
        with impl.Session() as other:
            assert tf1.get_default_session() is other
            with pytest.raises(tf.errors.FailedPreconditionError):
                v.eval()
        assert tf1.get_default_session() is session
        seen = []
        thread = threading.Thread(target=lambda: seen.append(tf1.get_default_session()))
        thread.start()
        thread.join()
        assert seen == [None]
    assert tf1.get_default_session() is None
    assert y.eval({x: 2.0}, session=session) == 3.0
    session.close()


def test_with_statement(alike: Any) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        y = tf.constant(1.5) * 2.0
        session = new_session()

        def use(fail: bool) -> Any:
            with session as entered:
                assert entered is session
                assert tf1.get_default_graph() is session.graph
                value = y.eval()
                if fail:
                    raise KeyError("fails")
            return value

        def enter_twice() -> None:
            with session, session:
                pass

        with tf.Graph().as_default():
            attempt(session.run, y)
            attempt(enter_twice)
            session = new_session(graph=y.graph)
            attempt(use, False)
            attempt(use, False)
            attempt(session.run, y)
            session = new_session(graph=y.graph)
            attempt(use, True)
            attempt(session.run, y)

    assert alike(program).errors == [
        "",
        *["RuntimeError", "", "RuntimeError", "RuntimeError", "KeyError", "RuntimeError"],
    ]


def test_subclass_that_overrides_run(impl: Any, graph: tf.Graph) -> None:
    class Counting(impl.Session):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.runs: list[Any] = []

        def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
            self.runs.append(fetches)
            return super().run(fetches, feed_dict, options, run_metadata)

    v = tf1.get_variable("v", initializer=1.5)
    with Counting(graph=graph) as session:
        v.initializer.run()
        assert v.eval() == 1.5
        assert session.run(v) == 1.5
        assert session.make_callable([v], [])() == [1.5]
        v.load(2.5, session)
        assert session.run([v]) == [2.5]
        assert len(session.runs) == 6


def test_replaced_methods(impl: Any, graph: tf.Graph) -> None:
    y = tf.constant(1.5) * 2.0
    with impl.Session() as session:
        assert y.eval() == 3.0
        with mock.patch.object(impl.Session, "run", return_value="patched"):
            assert y.eval() == "patched"
        with mock.patch.object(session, "run", return_value="patched") as run:
            assert y.eval() == "patched"
        run.assert_called_once_with(y, None)
        assert y.eval() == 3.0
        assert isinstance(mock.Mock(spec=session), tf1.Session)


def test_two_sessions_of_one_graph(impl: Any, graph: tf.Graph) -> None:
    v = tf1.get_variable("v", initializer=0, use_resource=True)
    add = v.assign_add(1)
    with impl.Session() as first, impl.Session() as second:
        first.run(v.initializer)
        second.run(v.initializer)
        for i in range(1, 20):
            assert first.run(add) == i
            assert second.run([add, add]) == [i, i]
        first.close()
        assert second.run(v) == 19
        new = v * 2
        assert second.run(new) == 38


def test_sessions_of_several_graphs_in_threads(impl: Any) -> None:
    results: list[Any] = [None] * 6

    def work(number: int) -> None:
        with tf.Graph().as_default():
            x = tf1.placeholder(tf.int32, [], name="x")
            y = x * number
            with impl.Session() as session:
                results[number] = [session.run(y, {"x:0": i}) for i in range(50)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[i * number for i in range(50)] for number in range(6)]


@pytest.mark.slow
@pytest.mark.parametrize("runs", [0, 1, 4, 30, 150])
def test_freed_with_the_last_reference(impl: Any, graph: tf.Graph, runs: int) -> None:
    """Without close() and without the garbage collector."""
    y = tf1.placeholder_with_default(1.5, []) * 2.0
    gc.collect()
    gc.disable()
    try:
        session = impl.Session()
        for _ in range(runs):
            session.run([y])
        alive = weakref.ref(session)
        del session
        assert alive() is None
    finally:
        gc.enable()


def test_nothing_keeps_a_graph(impl: Any) -> None:
    """What the sessions of a graph knew of it goes with them."""

    def use() -> Any:
        with tf.Graph().as_default() as graph:
            x = tf1.placeholder(tf.float32, [], name="x")
            y = x * 2.0
            with impl.Session() as session:
                assert session.run({"y": y}, {x: 1.5}) == {"y": 3.0}
            other = impl.Session()
            assert other.run(y, {"x:0": 1.5}) == 3.0
            return weakref.ref(graph)

    alive = use()
    gc.collect()
    assert alive() is None


def test_closed_without_runs(impl: Any) -> None:
    with tf.Graph().as_default():
        impl.Session().close()
        session = impl.Session()
        session.close()
        session.close()
        del session


@pytest.mark.parametrize("saves", ["tensorflow", "fastsup"])
@pytest.mark.parametrize("restores", ["tensorflow", "fastsup"])
def test_checkpoints(both: Any, graph: tf.Graph, tmp_path: Path, saves: str, restores: str) -> None:
    v = tf1.get_variable("v", initializer=np.arange(6.0).reshape(2, 3))
    step = tf1.train.get_or_create_global_step()
    add = [v.assign_add(tf.ones([2, 3], tf.float64)), step.assign_add(1)]
    saver = tf1.train.Saver()
    with getattr(both, saves).Session() as session:
        session.run(tf1.global_variables_initializer())
        for _ in range(5):
            session.run(add)
            path = saver.save(session, str(tmp_path / "model"), global_step=step)
    assert path == str(tmp_path / "model-5")
    with getattr(both, restores).Session() as session:
        session.run(tf1.global_variables_initializer())
        assert session.run(step) == 0
        saver.restore(session, path)
        value, number = session.run([v, step])
        assert value.tolist() == (np.arange(6.0).reshape(2, 3) + 5).tolist()
        assert number == 5
        with pytest.raises(ValueError, match="not a valid checkpoint"):
            saver.restore(session, str(tmp_path / "other"))


def test_queue_runners(impl: Any, graph: tf.Graph) -> None:
    numbers = tf1.train.range_input_producer(5, num_epochs=3, shuffle=False)
    taken = numbers.dequeue()
    with impl.Session() as session:
        session.run([tf1.global_variables_initializer(), tf1.local_variables_initializer()])
        coordinator = tf1.train.Coordinator()
        threads = tf1.train.start_queue_runners(session, coordinator)
        values = []
        with pytest.raises(tf.errors.OutOfRangeError):
            while True:
                values.append(int(session.run(taken)))
        coordinator.request_stop()
        coordinator.join(threads)
    assert values == [0, 1, 2, 3, 4] * 3
