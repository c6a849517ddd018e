"""Errors among runs that work: they come when they should, leave what has happened, and don't outlive their cause."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

tf1 = tf.compat.v1


def test_errors_that_come_later(alike: Any) -> None:
    """A plan that has worked, then fails, then works again."""

    def program(new_session: Any, attempt: Any) -> None:
        x = tf1.placeholder(tf.int32, name="x")
        quotient = tf1.div(10, x, name="quotient")
        iterator = tf1.data.make_initializable_iterator(tf.data.Dataset.range(2))
        following = iterator.get_next()
        v = tf1.get_variable("v", initializer=1.0, use_resource=True)
        with new_session() as session:
            attempt(session.run, v)
            session.run(v.initializer)
            for _ in range(2):
                session.run(iterator.initializer)
                for divisor in (1, 0, 2):
                    attempt(session.run, [quotient], {x: divisor})
                    attempt(session.run, following)
                    attempt(session.run, {"v": v})

    invalid, ended = "InvalidArgumentError", "OutOfRangeError"
    assert alike(program).errors == ["FailedPreconditionError", *["", "", "", invalid, "", "", "", ended, ""] * 2]


def test_an_operation_that_cannot_be_placed(alike: Any) -> None:
    """One such operation, added later, and nothing in the graph runs any more."""

    def program(new_session: Any, attempt: Any) -> None:
        x = tf1.placeholder(tf.float32, [], name="x")
        y = tf.multiply(x, 2.0, name="y")
        # The default depends on `tf.config.set_soft_device_placement`, which other tests of this process may call.
        with new_session(config=tf1.ConfigProto(allow_soft_placement=False)) as session:
            attempt(session.run, y, {x: 1.5})
            attempt(session.run, y, {x: 2.5})
            with tf.device("/device:GPU:7"):
                placed = tf.add(y, 1.0, name="placed")
            for _ in range(2):
                attempt(session.run, y, {x: 1.5})
                attempt(session.run, placed, {x: 1.5})
                attempt(session.run, "constant:0")
            tf.constant(1.5, name="constant")
            attempt(session.run, y, {x: 1.5})
            attempt(session.run, "constant:0")

    placement = "InvalidArgumentError"
    assert alike(program).errors == ["", "", *[placement, placement, "ValueError"] * 2, placement, placement]


def test_a_queue_that_is_closed(alike: Any) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        queue = tf1.FIFOQueue(3, tf.float32, [[]], name="queue")
        put, taken, closed = queue.enqueue(1.5, name="put"), queue.dequeue(name="taken"), queue.close(name="closed")
        with new_session() as session:
            for fetches in (put, taken, put, closed, put, taken, taken, put, [taken], {"put": put}, taken.op):
                attempt(session.run, fetches)

    ended, refused = "OutOfRangeError", "CancelledError"
    assert alike(program).errors == ["", "", "", "", refused, "", ended, refused, ended, refused, ended]


def test_a_step_that_fails_half_way(alike: Any) -> None:
    """What ran before the failure has happened, once."""

    def program(new_session: Any, attempt: Any) -> None:
        count = tf1.get_variable("count", initializer=0, use_resource=True)
        x = tf1.placeholder(tf.int32, name="x")
        with tf.control_dependencies([count.assign_add(1)]):
            quotient = tf1.div(10, x, name="quotient")
        with new_session() as session:
            session.run(count.initializer)
            for i in range(100):
                attempt(session.run, quotient, {x: i % 3})
            attempt(session.run, count)

    assert alike(program).errors.count("InvalidArgumentError") == 34


def test_errors_of_others(impl: Any, graph: tf.Graph) -> None:
    """An error that isn't TensorFlow's comes through as the object that was raised."""

    class Broken:
        def __init__(self, error: Exception) -> None:
            self.error = error

        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            raise self.error

    x = tf1.placeholder(tf.float32)
    y = x + 1.0
    with impl.Session() as session:
        for _ in range(3):
            assert session.run(y, {x: 1.0}) == 2.0
            error = LookupError("no array today")
            with pytest.raises(LookupError) as raised:
                session.run(y, {x: Broken(error)})
            assert raised.value is error
