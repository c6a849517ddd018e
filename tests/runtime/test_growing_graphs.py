"""Graphs that change between the runs of a session: what is new works, and what has run goes on as it did."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import tensorflow as tf

tf1 = tf.compat.v1


def test_operations_added_between_runs(alike: Any) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        x = tf1.placeholder(tf.float32, name="x")
        values = [x * 1.0]
        with new_session() as session:
            for i in range(10):
                attempt(session.run, values[-1], {x: 2.0})
                attempt(session.run, values, {"x:0": 3.0})
                attempt(session.run, f"later{i}:0")
                values.append(tf.add(values[-1], float(i)))
                attempt(session.run, values[0], {x: 2.0})
                tf.constant(i, name=f"later{i}")
                attempt(session.run, f"later{i}:0")

    raised = alike(program).errors
    assert raised == ["", "", "ValueError", "", ""] * 10


@pytest.mark.slow
def test_placeholders_and_variables_added_between_runs(alike: Any) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        total = tf.constant(0.0)
        feeds: dict[Any, Any] = {}
        with new_session() as session:
            for i in range(6):
                attempt(session.run, total, feeds)
                x = tf1.placeholder(tf.float32, [], name=f"x{i}")
                total = total + x
                attempt(session.run, total, feeds)
                feeds[x] = i + 1
                attempt(session.run, [total, x], feeds)
                v = tf1.get_variable(f"v{i}", initializer=10.0, use_resource=i % 2 == 0)
                total = total * v
                attempt(session.run, total, feeds)
                session.run(v.initializer)
                attempt(session.run, total, feeds)

    missing, uninitialized = "InvalidArgumentError", "FailedPreconditionError"
    assert alike(program).errors == ["", missing, "", uninitialized, ""] * 6


def test_two_sessions(alike: Any) -> None:
    """Each session takes up what is new when it runs next."""

    def program(new_session: Any, attempt: Any) -> None:
        v = tf1.get_variable("v", initializer=1.0, use_resource=True)
        with new_session() as first, new_session() as second:
            first.run(v.initializer)
            second.run(v.initializer)
            for i in range(5):
                y = v * float(i)
                attempt(first.run, y)
                z = y + 1.0
                attempt(second.run, [y, z])
                attempt(first.run, v.assign_add(1.0))
                attempt(first.run, [z, v])
                attempt(second.run, v)

    assert not any(alike(program).errors)


def test_imported_graph(alike: Any) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        with tf.Graph().as_default() as other:
            tf.multiply(tf1.placeholder(tf.float32, name="x"), 2.0, name="y")
        a = tf.constant(1.5)
        with new_session() as session:
            attempt(session.run, a)
            attempt(session.run, "copy/y:0", {"copy/x:0": 1.0})
            tf.import_graph_def(other.as_graph_def(), name="copy")
            for _ in range(3):
                attempt(session.run, "copy/y:0", {"copy/x:0": 1.0})
                attempt(session.run, [a, "copy/y"], {"copy/x:0": 1.0})

    assert alike(program).errors == ["", "TypeError", *[""] * 6]


@pytest.mark.slow
def test_functions_added_between_runs(alike: Any) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        x = tf1.placeholder(tf.int32, [], name="x")
        y = x + 1
        with new_session() as session:
            for i in range(3):
                attempt(session.run, y, {x: i})
                y = tf.cond(y > 2, lambda y=y: y * 2, lambda y=y, i=i: y - i)
                attempt(session.run, y, {x: i})
                y = tf1.while_loop(lambda n: n < 20, lambda n: [n + 3], [y])
                attempt(session.run, [y], {x: i})
                y = tf.function(lambda n: n * n)(y)
                attempt(session.run, {"y": y}, {x: i})

    assert not any(alike(program).errors)


def test_operation_changed_after_it_ran(alike: Any) -> None:
    """TensorFlow goes on with the operation as it was; what it says about the change, it says here too."""

    def program(new_session: Any, attempt: Any) -> None:
        constant = tf.constant(1.5, name="constant")
        y = tf.square(constant, name="y")
        with new_session() as session:
            attempt(session.run, y)
            constant.op._set_attr("value", tf1.AttrValue(tensor=tf.make_tensor_proto(5.0)))
            attempt(session.run, y)
            attempt(session.run, [y])
            y.op._update_input(0, tf.constant(7.0))
            for _ in range(2):
                attempt(session.run, y)
                attempt(session.run, {"y": y})
                tf.constant(1.0)
        with new_session() as session:
            attempt(session.run, [y, constant])

    alike(program)


def test_finished_graph_that_is_opened_again(alike: Any) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        graph = tf1.get_default_graph()
        y = tf.constant(1.5)
        graph.finalize()
        with new_session() as session:
            for i in range(4):
                attempt(session.run, [y])
                attempt(tf.constant, i)
                graph._unsafe_unfinalize()
                y = y + float(i)
                attempt(session.run, [y])
                graph.finalize()

    assert alike(program).errors == ["", "RuntimeError", ""] * 4


def test_graph_that_grows_while_others_run(impl: Any, graph: tf.Graph) -> None:
    x = tf1.placeholder(tf.float32, [], name="x")
    y = x * 2.0
    failures: list[BaseException] = []
    stop = threading.Event()
    with impl.Session() as session:

        def run_all_the_time() -> None:
            i = 0
            try:
                while not stop.is_set():
                    i += 1
                    assert session.run(y, {x: i}) == 2.0 * i
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=run_all_the_time) for _ in range(3)]
        for thread in threads:
            thread.start()
        total = y
        for i in range(60):
            total = tf.add(total, 1.0)
            assert session.run(total, {x: 1.0}) == 3.0 + i
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []
