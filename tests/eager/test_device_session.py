"""`fastsup.DeviceSession`: callables that take and give eager tensors, alongside all that a session does."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import fastsup

v1 = tf.compat.v1


class Program:
    """A graph with a step, in a session that is open."""

    def __init__(self, name: str, executor: str = "auto") -> None:
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.x = v1.placeholder(tf.float32, [None, 2], "x")
            self.weights = v1.get_variable(name, initializer=np.eye(2, dtype=np.float32), use_resource=True)
            self.y = tf.identity(self.x @ self.weights, name="y")
            self.update = self.weights.assign_add(tf.ones([2, 2])).op
            initialize = v1.global_variables_initializer()
        self.session = fastsup.DeviceSession(self.graph, executor=executor)
        self.session.run(initialize)


@pytest.fixture
def program(request: pytest.FixtureRequest) -> Any:
    made = Program(request.node.name.replace("[", "_").strip("]"))
    yield made
    made.session.close()


@pytest.mark.parametrize("executor", ["auto", "thread_pool", "inline", "single_threaded"])
def test_results_are_those_of_run(executor: str) -> None:
    program = Program(f"w_{executor}", executor)
    session = program.session
    step = session.make_device_callable({"y": program.y, "update": program.update}, [program.x])
    for number in range(300):
        value = np.full([number % 3 + 1, 2], number, np.float32)
        before = session.run(program.y, {program.x: value})
        found = step(tf.constant(value) if number % 2 else value)
        assert found["update"] is None
        assert isinstance(found["y"], tf.Tensor)
        # The update comes before the product, or after it.
        after = session.run(program.y, {program.x: value})
        assert found["y"].numpy().tolist() in (before.tolist(), after.tolist())
    session.close()


def test_structures(program: Any) -> None:
    session, x, y = program.session, program.x, program.y
    with program.graph.as_default():
        doubled = y * 2.0
    value = tf.ones([1, 2])
    assert session.make_device_callable(program.update)() is None
    session.run(program.weights.initializer)
    assert session.make_device_callable(y, [x])(value).numpy().tolist() == [[1.0, 1.0]]
    assert session.make_device_callable("y:0", ["x:0"])(value).numpy().tolist() == [[1.0, 1.0]]
    for _ in range(2):
        first, (second, third) = session.make_device_callable([y, (doubled, y)], [x])(value)
        assert [t.numpy().tolist() for t in (first, second, third)] == [[[1.0, 1.0]], [[2.0, 2.0]], [[1.0, 1.0]]]
    # A tensor in the middle of the graph may be fed, too.
    assert session.make_device_callable(doubled, [y])(value).numpy().tolist() == [[2.0, 2.0]]


def test_bad_arguments(program: Any) -> None:
    session, x, y = program.session, program.x, program.y
    step = session.make_device_callable(y, [x])
    with pytest.raises(ValueError, match=r"Cannot feed value of shape \(1, 3\) for Tensor x:0, which has shape"):
        step(tf.ones([1, 3]))
    with pytest.raises(TypeError, match="takes 1 tensors, as feed_list has; got 2"):
        step(1.0, 2.0)
    with pytest.raises((TypeError, ValueError)):
        step("a word")
    with pytest.raises(ValueError, match=r"device must be one of .*; got '/gpu:7'"):
        session.make_device_callable(y, [x], "/gpu:7")
    with pytest.raises(TypeError):
        session.make_device_callable(None)
    with pytest.raises(tf.errors.InvalidArgumentError, match="feed a value for placeholder"):
        session.make_device_callable(y)()
    assert step(tf.ones([1, 2])).numpy().shape == (1, 2)
    with session, pytest.raises(TypeError, match=r"a tensor of a graph\. Within `with session:`"):
        step(tf.ones([1, 2]))
    with pytest.raises(RuntimeError, match="Attempted to use a closed Session"):
        step(tf.ones([1, 2]))


def test_a_session_goes_with_its_callables() -> None:
    program = Program("w_that_goes")
    step = program.session.make_device_callable(program.y, [program.x])
    session = weakref.ref(program.session)
    del program
    gc.collect()
    assert step(tf.ones([1, 2])).numpy().tolist() == [[1.0, 1.0]]
    del step
    gc.collect()
    assert session() is None
