"""Large results are handed on where TensorFlow's session does that, and copied where their memory has another owner."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import fastsup
from fastsup.runtime import session_run, trial

tf1 = tf.compat.v1

# TensorFlow's single-threaded executor refuses reference variables.
EXECUTORS = ["tensorflow", "auto", "thread_pool", "inline", "single_threaded"]
COUNT = 1 << 16
# More than it takes to choose an executor, with the short trials below, and to hand results on.
RUNS = 60


@pytest.fixture(params=EXECUTORS)
def executor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(session_run, "_COPIED_BYTES_PER_SEC", 0.0)
    monkeypatch.setattr(trial, "_BLOCK_RUNS", 8)
    monkeypatch.setattr(trial, "_MOST_PAIRS", 2)
    monkeypatch.setattr(trial, "_SAVED_SECS", 1e9)  # The trial begins at once.
    name: str = request.param
    return name


@pytest.fixture(params=[True, False], ids=["resource", "reference"])
def use_resource(request: pytest.FixtureRequest, executor: str) -> bool:
    resource: bool = request.param
    if not resource and executor == "single_threaded":
        pytest.skip("the single-threaded executor refuses reference variables")
    return resource


def open_session(executor: str, target: str = "") -> Any:
    return tf1.Session(target) if executor == "tensorflow" else fastsup.Session(target, executor=executor)


def fetches_of(variable: Any, fed: Any) -> dict[str, Any]:
    """Values computed, values that others hold, and values that only look like one or the other."""
    read = variable.read_value()
    return {
        "computed": variable + fed,
        "computed, reshaped": tf.reshape(tf.square(variable) + fed, [2, -1]),
        "variable": variable,
        "read": read,
        "read, reshaped": tf.reshape(read, [2, -1]),
        "part of a variable": read[: COUNT // 2],
        "variable times 1": variable * 1.0,
        "constant": tf.constant(np.arange(COUNT, dtype=np.float32)),
        "folded constant": tf.range(COUNT) + 1,
        "fed": tf.identity(fed),
        "fed, reshaped": tf.reshape(fed, [2, -1]),
    }


@pytest.mark.slow
def test_handed_on_as_tensorflow_does(graph: tf.Graph, executor: str, use_resource: bool) -> None:
    variable = tf1.get_variable("v", initializer=tf.ones([COUNT]), use_resource=use_resource)
    fed = tf1.placeholder(tf.float32, [None])
    fetches = fetches_of(variable, fed)
    feed = {fed: np.ones(COUNT, np.float32)}
    with open_session(executor) as session, tf1.Session() as other:
        for each in (session, other):
            each.run(variable.initializer)
        for name, fetch in fetches.items():
            for _ in range(RUNS):
                result = session.run(fetch, feed)
            expected = other.run(fetch, feed)
            np.testing.assert_array_equal(result, expected)
            assert result.flags.writeable
            assert (result.base is None) == (expected.base is None), name


@pytest.mark.slow
def test_later_steps_never_change_a_result(graph: tf.Graph, executor: str, use_resource: bool) -> None:
    variable = tf1.get_variable("v", initializer=tf.ones([COUNT]), use_resource=use_resource)
    fed = tf1.placeholder(tf.float32, [None])
    updates = [
        variable.assign_add(tf.ones([COUNT])).op,
        tf1.scatter_add(variable, [1], [10.0]),
        tf1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(variable**2)),
        variable.assign(tf.zeros([COUNT])).op,
    ]
    fetches = [fetches_of(variable, fed), {"updated": variable.assign_add(tf.ones([COUNT]))}]
    value = np.arange(COUNT, dtype=np.float32)
    with open_session(executor) as session:
        session.run(variable.initializer)
        kept: list[tuple[Any, Any]] = []
        for i in range(RUNS):
            results = [session.run(fetches[0], {fed: value}), session.run(fetches[1])]
            kept.append((results, [{name: array.copy() for name, array in each.items()} for each in results]))
            session.run(updates[i % len(updates)])
            value += 1.0
            del kept[:-5]
        session.run(updates[0])
    for results, copies in kept:
        for arrays, expected in zip(results, copies, strict=True):
            for name, array in arrays.items():
                np.testing.assert_array_equal(array, expected[name], name)


@pytest.mark.slow
def test_writing_into_a_result_changes_nothing_else(graph: tf.Graph, executor: str, use_resource: bool) -> None:
    variable = tf1.get_variable("v", initializer=tf.ones([COUNT]), use_resource=use_resource)
    fed = tf1.placeholder(tf.float32, [None])
    fetches = fetches_of(variable, fed)
    value = np.full(COUNT, 2.0, np.float32)
    with open_session(executor) as session:
        session.run(variable.initializer)
        first = session.run(fetches, {fed: value})
        expected = {name: array.copy() for name, array in first.items()}
        for _ in range(RUNS):
            results = session.run(fetches, {fed: value})
            for name, array in results.items():
                np.testing.assert_array_equal(array, expected[name], name)
            for array in results.values():
                array.fill(-1)
            assert (value == 2.0).all()


def test_elements_of_a_cached_dataset(graph: tf.Graph, executor: str) -> None:
    """The dataset gives the same memory again and again."""
    dataset = tf.data.Dataset.from_tensors(np.ones(COUNT, np.float32)).cache().repeat()
    element = tf1.data.make_one_shot_iterator(dataset).get_next()
    with open_session(executor) as session:
        for _ in range(RUNS):
            result = session.run(element)
            assert (result == 1.0).all()
            result.fill(-1.0)


@pytest.mark.parametrize("remote", [False, True])
def test_errors_stay_the_same(impl: Any, graph: tf.Graph, monkeypatch: pytest.MonkeyPatch, remote: bool) -> None:
    """Also once results are handed on: type, operation and text."""
    monkeypatch.setattr(session_run, "_COPIED_BYTES_PER_SEC", 0.0)
    x = tf1.placeholder(tf.float32, [None], name="x")
    y = tf.add(tf1.placeholder_with_default(tf.ones([COUNT]), [None]), x, name="y")
    target = tf1.train.Server.create_local_server().target if remote else ""
    with impl.Session(target) as session:
        for _ in range(RUNS):
            assert (session.run(y, {x: np.ones(COUNT, np.float32)}) == 2.0).all()
        with pytest.raises(tf.errors.InvalidArgumentError, match="Incompatible shapes") as raised:
            session.run(y, {x: np.ones(COUNT - 1, np.float32)})
        assert raised.value.op is y.op
        assert (session.run(y, {x: np.ones(COUNT, np.float32)}) == 2.0).all()


def test_results_that_are_seldom_large(graph: tf.Graph, executor: str) -> None:
    """A plan whose results are mostly small gives large ones too."""
    x = tf1.placeholder(tf.float32, [None])
    y = x + 1.0
    with open_session(executor) as session:
        for i in range(RUNS):
            value = np.full(COUNT if i % 7 == 6 else 3, i, np.float32)
            result = session.run(y, {x: value})
            np.testing.assert_array_equal(result, value + 1.0)


def test_the_executor_is_chosen_before_results_are_handed_on(graph: tf.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial of executors waits for some runs first. What it finds holds for results that are handed on too."""
    monkeypatch.setattr(session_run, "_COPIED_BYTES_PER_SEC", 0.0)
    monkeypatch.setattr(trial, "_SAVED_SECS", 1e-3)
    variable = tf1.get_variable("v", initializer=tf.ones([COUNT]), use_resource=True)
    with fastsup.Session() as session:
        session.run(variable.initializer)
        for _ in range(1000):
            session.run(variable)
        seconds = [plan.seconds for plan in session.executor_info()]
    assert seconds[-1] is not None


def test_a_result_outlives_the_session(graph: tf.Graph, executor: str) -> None:
    variable = tf1.get_variable("v", initializer=tf.ones([COUNT]), use_resource=True)
    total = variable + 1.0
    with open_session(executor) as session:
        session.run(variable.initializer)
        results = [session.run(total) for _ in range(RUNS)]
    del session
    assert all((result == 2.0).all() for result in results)
