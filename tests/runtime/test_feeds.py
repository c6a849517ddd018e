"""Every way to say what is fed: by tensor, name, variable, composite or nested tuple; and what isn't a feed.

A form returns the fetches and the feed dictionary; see `Form.check` for how it is run.
"""

from __future__ import annotations

import collections
import types
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import fastsup

tf1 = tf.compat.v1

form = pytest.mark.form


# --- what is fed ------------------------------------------------------------------------------------------------------


@form
def a_placeholder(make: Any):
    x = make.floats()
    y = x * 2.0
    return lambda: (y, {x: 1.5})


@form
def a_tensor_that_is_fed_and_fetched(make: Any):
    x = make.floats()
    y = x * 2.0
    return lambda: ([y, x, {"again": (x, y)}], {x: np.ones(3, np.float32)})


@form
def a_number_that_is_fed_and_fetched(make: Any):
    x = tf1.placeholder(tf.float32, [], "rate")
    y = x * 2.0
    return lambda: ([y, x], {x: 0.5})


@form
def a_tensor_in_the_middle_that_is_fed_and_fetched(make: Any):
    x = make.floats()
    middle = x * 2.0
    y = middle + 1.0
    return lambda: ((middle, y, y.op), {middle: [3.0], x: [1.0]})


@form
def nothing_but_what_is_fed(make: Any):
    x = make.floats()
    return lambda: ([x, x], {x: [3.0]})


@form
def a_placeholder_by_name(make: Any):
    y = make.floats() * 2.0
    return lambda: (y, {"x:0": [1.5]})


@form
def the_name_of_a_subclass_of_str(make: Any):
    y = make.floats() * 2.0
    return lambda: (y, {np.str_("x:0"): [1.5]})


@form
def a_name_in_bytes(make: Any):
    y = make.floats() * 2.0
    return lambda: (y, {b"x:0": [1.5]})


@form
def a_fetch_by_name_and_a_feed_by_name(make: Any):
    tf.identity(make.floats(), name="y")
    return lambda: (["y:0", "y"], {"x:0": 1})


@form
def a_placeholder_with_a_default():
    x = tf1.placeholder_with_default([1.0, 2.0], [2])
    y = x * 2.0
    return lambda: ([y, x], {x: [3.0, 4.0]})


@form
def an_intermediate_result(make: Any):
    doubled = tf.multiply(make.floats(), 2.0, name="doubled")
    y = doubled + 1.0
    return lambda: (y, {doubled: [10, 20]})


@form
def one_output_of_several(make: Any):
    parts = tf.split(make.floats(shape=[4]), 2, name="split")
    y = parts[0] - parts[1]
    return lambda: ([y, parts[0]], {parts[1]: [5.0, 5.0], "x:0": [1, 2, 3, 4]})


@form
def a_constant():
    constant = tf.constant([1.0, 2.0], name="constant")
    y = constant * 2.0
    return lambda: ([y, constant], {constant: [7.0, 8.0]})


@form(raises=ValueError)
def a_constant_whose_value_was_used_to_build_the_graph():
    shape = tf.constant([2, 3], name="shape")
    y = tf.ones(tf.get_static_value(shape)) + tf.fill(shape, 1.0)
    return lambda: (y, {shape: [3, 2]})


@form
def a_resource_variable():
    v = tf1.get_variable("v", initializer=[1.0, 2.0], use_resource=True)
    y = v * 2.0
    return lambda: ([v, y, v.value()], {v: [7.0, 8.0]})


@form
def the_read_of_a_resource_variable():
    v = tf1.get_variable("v", initializer=[1.0, 2.0], use_resource=True)
    read = v.read_value()
    y = read * 2.0
    return lambda: ([v, y], {read: [7.0, 8.0]})


@form
def a_reference_variable():
    v = tf1.get_variable("v", initializer=[1.0, 2.0], use_resource=False)
    y = v * 2.0
    return lambda: ([v, y, v.value()], {v: [7.0, 8.0]})


@form
def the_snapshot_of_a_reference_variable():
    v = tf1.get_variable("v", initializer=[1.0, 2.0], use_resource=False)
    y = v.value() * 2.0
    return lambda: ([v, y], {v.value(): [7.0, 8.0]})


@form
def something_that_no_fetch_needs(make: Any):
    x = make.floats()
    y = tf.constant(1.5)
    return lambda: (y, {x: [1.0]})


@form
def an_operation_that_needs_a_feed(make: Any):
    v = tf1.get_variable("v", initializer=1.0, use_resource=True)
    add = v.assign_add(make.floats(shape=[])).op
    return lambda: ([add, add], {"x:0": 2.0})


@form
def a_fetch_that_is_fed(make: Any):
    x = make.floats(shape=[2])
    return lambda: (x, {x: [1.0, 2.0]})


@form
def a_fetched_scalar_that_is_fed(make: Any):
    x = make.floats()
    return lambda: (x, {x: 5})


@form
def fetches_of_which_some_are_fed(make: Any):
    x = make.floats(shape=[2])
    y = tf.identity(x, name="y")
    return lambda: ({"x": x, "both": [y, x], "op": y.op, "names": ("x:0", "y:0")}, {x: [1.0, 2.0]})


@form
def the_operation_of_a_fetch_that_is_fed(make: Any):
    x = make.floats(shape=[2])
    y = tf.identity(x)
    return lambda: ([y, y.op], {y: [1.0, 2.0], x: [3.0, 4.0]})


@form
def texts():
    x = tf1.placeholder(tf.string, name="x")
    y = tf.strings.join([x, "!"])
    return lambda: ([y, x], {x: ["a", b"b", "é"]})


@form
def the_same_tensor_by_two_keys(make: Any):
    x = make.floats("x")
    y = x + 1.0
    return lambda: (y, {x: 1.0, "x:0": 2.0})


@form
def an_empty_dictionary():
    constant = tf.constant(1.5)
    return lambda: (constant, {})


@pytest.mark.parametrize(
    "kind", [collections.OrderedDict, types.MappingProxyType, collections.UserDict, lambda feeds: feeds.items(), list]
)
def test_other_dictionaries(alike: Any, kind: Any, make: Any) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        x, z = make.floats("x"), make.floats("z")
        y = x - z
        with new_session() as session:
            for _ in range(3):
                attempt(session.run, y, kind({x: 1.5, z: 2.5}))
                attempt(session.run, y, collections.defaultdict(lambda: 3.0, {x: 1.5, "z:0": 2.5}))

    errors = alike(program).errors
    assert len(set(errors[::2])) == 1
    assert not any(errors[1::2])


@pytest.mark.parametrize("nothing", [None, (), [], "", 0, False, frozenset()], ids=repr)
def test_no_feeds(alike: Any, nothing: Any) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        constant = tf.constant(1.5)
        with new_session() as session:
            for _ in range(3):
                attempt(session.run, constant, nothing)

    assert not any(alike(program).errors)


# --- what isn't a feed ------------------------------------------------------------------------------------------------


@form(raises=TypeError)
def a_tensor_as_a_value(make: Any):
    x, z = make.floats("x"), tf.constant(1.5, name="z")
    y = tf.identity(x)
    return lambda: (y, {x: z})


@form(raises=TypeError)
def the_name_of_nothing(make: Any):
    y = tf.identity(make.floats())
    return lambda: (y, {"nothing:0": 1.5})


@form(raises=TypeError)
def the_name_of_an_operation(make: Any):
    y = tf.identity(make.floats())
    return lambda: (y, {"x": 1.5})


@form(raises=TypeError)
def an_operation(make: Any):
    x = make.floats()
    y = tf.identity(x)
    return lambda: (y, {x.op: 1.5})


@form(raises=TypeError)
def none_as_a_key(make: Any):
    y = tf.identity(make.floats())
    return lambda: (y, {None: 1.5})


@form(raises=TypeError)
def a_number_as_a_key(make: Any):
    y = tf.identity(make.floats())
    return lambda: (y, {37: 1.5})


@form(raises=TypeError)
def a_tensor_of_another_graph(make: Any):
    y = tf.identity(make.floats())
    with tf.Graph().as_default():
        other = make.floats()
    return lambda: (y, {other: 1.5})


@form(raises=ValueError)
def a_value_of_the_wrong_shape(make: Any):
    x = make.floats(shape=[None, 3])
    y = tf.identity(x)
    return lambda: (y, {x: [[1.0, 2.0]]})


@form(raises=ValueError)
def a_value_of_the_wrong_type(make: Any):
    x = make.floats()
    y = tf.identity(x)
    return lambda: (y, {x: "text"})


@pytest.mark.slow
def test_form(form: Any, alike: Any) -> None:
    form.check(alike, lambda session, arguments: session.run(*arguments))


def test_values_that_hold_tensors(alike: Any, make: Any) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        x = make.floats(name="x")
        y = tf.identity(x)
        v = tf1.get_variable("v", initializer=1.0)
        with new_session() as session:
            for _ in range(2):
                attempt(session.run, y, {x: [tf.constant(1.5, name="z")]})
                attempt(session.run, y, {x: v})
                attempt(session.run, y, {x: tf.SparseTensor([[0]], [1.0], [2])})
                attempt(session.run, y, {x: tf1.SparseTensorValue([[0]], [1.0], [2])})

    assert all(alike(program).errors)


def test_a_tensor_that_is_fed_and_fetched_has_a_plan(graph: Any) -> None:
    x = tf1.placeholder(tf.float32, [None], "x")
    y = x * 2.0
    with fastsup.Session() as session:
        for _ in range(3):
            session.run([y, x], {x: [1.0]})
        assert session.plan_cache_info().hits == 2
