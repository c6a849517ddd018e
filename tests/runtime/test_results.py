"""A result belongs to the program: it shares nothing with other results, with the graph's state or with the feeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

tf1 = tf.compat.v1


def test_results_are_not_shared(alike: Any) -> None:
    """What a program does to one result doesn't show in the next."""

    def program(new_session: Any, attempt: Any) -> None:
        constant = tf.constant([1.0, 2.0, 3.0])
        variable = tf1.get_variable("v", initializer=[4.0, 5.0], use_resource=True)
        reference = tf1.get_variable("r", initializer=[6.0, 7.0], use_resource=False)
        strings = tf.constant(["a", "b"])
        fetches = {"list": [constant, [variable]], "dict": {"reference": reference}, "strings": strings}
        with new_session() as session:
            session.run(tf1.global_variables_initializer())
            for _ in range(3):
                result = attempt(session.run, fetches)
                for array in (result["list"][0], result["list"][1][0], result["dict"]["reference"]):
                    array.fill(-1.0)
                result["strings"][:] = b"changed"
                result["list"][1].append("more")
                result["list"].clear()
                result["dict"]["new"] = 1
                del result["list"]
            for single in (constant, variable, reference, strings) * 2:
                array = attempt(session.run, single)
                array[:] = array[::-1].copy()

    assert not any(alike(program).errors)


@pytest.mark.parametrize("use_resource", [True, False])
def test_results_stay_as_they_were(alike: Any, use_resource: bool) -> None:
    """A value is of the run that fetched it: later steps, which change the variable in place, don't reach it."""

    def program(new_session: Any, attempt: Any) -> None:
        variable = tf1.get_variable("v", initializer=[1.0, 2.0, 3.0], use_resource=use_resource)
        fetches = {"variable": variable, "read": [variable.value()], "again": variable.read_value()}
        updates = [
            variable.assign_add([1.0, 1.0, 1.0]),
            variable.assign([7.0, 8.0, 9.0]),
            tf1.scatter_add(variable, [1], [10.0]),
            tf1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(variable**2)),
        ]
        with new_session() as session:
            session.run(variable.initializer)
            results = []
            for update in [*updates, *updates]:
                results.append(session.run(fetches))
                results.append(session.run(variable))
                session.run(update)
            attempt(lambda: results)

    assert alike(program).errors == [""]


def test_values_outlive_the_session(alike: Any) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        constant = tf.constant(np.arange(1000.0))
        variable = tf1.get_variable("v", initializer=np.arange(1000.0))
        with new_session() as session:
            session.run(variable.initializer)
            values = [session.run([constant, variable, variable + constant]) for _ in range(3)]
            session.run(variable.assign(tf.zeros([1000], tf.float64)))
        del session
        attempt(lambda: values)

    alike(program)


def test_callable_results_are_not_shared(alike: Any) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        constant = tf.constant([1.0, 2.0])
        variable = tf1.get_variable("v", initializer=[4.0, 5.0], use_resource=True)
        with new_session() as session:
            session.run(variable.initializer)
            for function in (session.make_callable([constant, [variable]]), session.make_callable(variable)):
                for _ in range(3):
                    result = attempt(function)
                    (result if isinstance(result, np.ndarray) else result[1][0]).fill(-1.0)
                    if isinstance(result, list):
                        result[0].fill(-1.0)
                        result[1].clear()

    assert not any(alike(program).errors)


def aligned(count: int, offset: int) -> np.ndarray:
    """Floats at an address that the runtime can use without a copy (offset 0), or can't."""
    raw = np.zeros([4 * count + 128], np.uint8)
    start = -raw.ctypes.data % 64 + offset
    return raw[start : start + 4 * count].view(np.float32)


@pytest.mark.parametrize("offset", [0, 4])
def test_arrays_changed_after_the_run(alike: Any, offset: int) -> None:
    """Neither a result nor a variable is tied to the array that was fed, even where the runtime reads it in place."""

    def program(new_session: Any, attempt: Any) -> None:
        x = tf1.placeholder(tf.float32, [3], name="x")
        variable = tf1.get_variable("v", initializer=[0.0, 0.0, 0.0], use_resource=False)
        update = variable.assign(x)
        fetches = [tf.identity(x), {"reshaped": tf.reshape(x, [3, 1])}, tf.add(x, 1.0), update.op]
        value = aligned(3, offset)
        with new_session() as session:
            kept = []
            for i in range(5):
                value.fill(i)
                kept.append(session.run(fetches, {x: value}))
                value.fill(-1)
                attempt(session.run, variable)
                kept[-1][0].fill(-2)
                attempt(lambda: value.copy())
                kept[-1][0].fill(i)
            attempt(lambda: kept)

    assert not any(alike(program).errors)


def test_a_fetch_that_is_fed_is_what_was_fed(impl: Any, graph: tf.Graph) -> None:
    """The array itself, where it needed no conversion."""
    x = tf1.placeholder(tf.float32, name="x")
    y = x + 1.0
    value = np.array([1.0, 2.0], np.float32)
    other = np.array([1.0, 2.0])
    with impl.Session() as session:
        for _ in range(3):
            assert session.run(x, {x: value}) is value
            fetched, added = session.run([x, y], {x: value})
            assert fetched is value
            assert added is not value
            assert session.run({"x": ["x:0"]}, {x: value})["x"][0] is value
            assert session.run(x, {x: other}) is not other
