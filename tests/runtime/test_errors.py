"""What fails, fails as in TensorFlow's Session: type, text, code, operation; each time; and the session goes on."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.framework import errors

tf1 = tf.compat.v1

form = pytest.mark.form


# --- operations that fail ---------------------------------------------------------------------------------------------


@form(raises=errors.InvalidArgumentError)
def a_kernel():
    x = tf1.placeholder(tf.float32, name="x")
    y = tf.reshape(x, [2, 2], name="reshaped")
    return lambda: ([y], {x: [1.0, 2.0, 3.0]})


@form(raises=errors.InvalidArgumentError)
def a_kernel_without_feeds():
    v = tf1.get_variable("v", initializer=7, use_resource=True)
    y = tf.gather(tf.constant([1, 2, 3]), v, name="gathered")
    return lambda: (y,)


@form(raises=errors.InvalidArgumentError)
def a_kernel_behind_an_operation():
    v = tf1.get_variable("v", initializer=7.0, use_resource=True)
    with tf.control_dependencies([tf1.Assert(v < 1.0, [v], name="check")]):
        op = tf.no_op(name="after")
    return lambda: ({"op": op},)


@form(raises=errors.InvalidArgumentError)
def a_division_by_zero():
    x = tf1.placeholder(tf.int32, name="x")
    quotient = tf1.div(tf.constant([1, 2]), x, name="quotient")
    return lambda: (quotient, {x: 0})


@form(raises=errors.InvalidArgumentError)
def an_assertion():
    x = tf1.placeholder(tf.float32, name="x")
    check = tf1.Assert(tf.less(x, 1.0), ["too large:", x], name="check")
    return lambda: (check, {x: 5.0})


@form(raises=errors.InvalidArgumentError)
def numbers_that_are_none():
    x = tf1.placeholder(tf.float32, name="x")
    y = tf.debugging.check_numerics(tf.math.log(x), "the logarithm", name="checked")
    return lambda: ({"y": y}, {x: -1.0})


@form(raises=errors.InvalidArgumentError)
def a_text_that_is_no_number():
    x = tf1.placeholder(tf.string, name="x")
    y = tf.strings.to_number(x, name="number")
    return lambda: (y, {x: "seven"})


@form(raises=errors.NotFoundError)
def a_file_that_is_not_there():
    contents = tf.io.read_file("no/such/file", name="contents")
    return lambda: (contents,)


@form(raises=errors.OutOfRangeError)
def the_end_of_a_dataset():
    iterator = tf1.data.make_one_shot_iterator(tf.data.Dataset.range(0))
    following = iterator.get_next(name="following")
    return lambda: ([following, following.op],)


@form(raises=errors.FailedPreconditionError)
def an_iterator_that_is_not_initialized():
    iterator = tf1.data.make_initializable_iterator(tf.data.Dataset.range(2))
    following = iterator.get_next(name="following")
    return lambda: (following,)


@form(raises=errors.FailedPreconditionError)
def a_resource_variable_that_is_not_initialized():
    v = tf1.get_variable("v", initializer=1.0, use_resource=True, collections=[])
    y = v + 1.0
    return lambda: (y,)


@form(raises=errors.FailedPreconditionError)
def a_reference_variable_that_is_not_initialized():
    v = tf1.get_variable("v", initializer=1.0, use_resource=False, collections=[])
    return lambda: ([v],)


@form(raises=errors.FailedPreconditionError)
def a_table_that_is_not_initialized():
    initializer = tf.lookup.KeyValueTensorInitializer(["a"], [1])
    table = tf.lookup.StaticHashTable(initializer, -1, name="table")
    found = table.lookup(tf.constant(["a"]), name="found")
    return lambda: (found,)


@form(raises=errors.OutOfRangeError)
def the_end_of_a_limit():
    counter = tf1.get_variable("counter", initializer=5, use_resource=False)
    following = counter.count_up_to(5)
    return lambda: (following,)


@form(raises=errors.InvalidArgumentError)
def a_python_function():
    def fail(x: Any) -> Any:
        raise ValueError(f"fed {x}")

    x = tf1.placeholder(tf.float32, name="x")
    y = tf1.py_func(fail, [x], tf.float32, name="python")
    return lambda: (y, {x: 1.5})


@form(raises=errors.InvalidArgumentError)
def the_body_of_a_loop():
    x = tf1.placeholder(tf.int32, [], name="x")
    y = tf.while_loop(lambda i: i < 10, lambda i: [i + tf1.div(10, x)], [tf.constant(0)], name="loop")
    return lambda: (y, {x: 0})


@form(raises=errors.InvalidArgumentError)
def a_branch():
    x = tf1.placeholder(tf.int32, [], name="x")
    y = tf.cond(x < 1, lambda: tf1.div(10, x, name="quotient"), lambda: x, name="branches")
    return lambda: (y, {x: 0})


@form(raises=errors.InvalidArgumentError)
def a_tensorflow_function():
    @tf.function
    def divide(x: tf.Tensor) -> tf.Tensor:
        return tf1.div(10, x, name="quotient")

    x = tf1.placeholder(tf.int32, [], name="x")
    y = divide(x)
    return lambda: (y, {x: 0})


@form(raises=errors.InvalidArgumentError)
def a_placeholder_that_is_not_fed():
    x = tf1.placeholder(tf.float32, [2, None], name="x")
    y = tf.identity(x, name="y")
    return lambda: ([y, "x:0"],)


# --- what isn't in the graph, or can't be fetched ---------------------------------------------------------------------


@form(raises=ValueError)
def a_tensor_of_another_graph():
    with tf.Graph().as_default():
        other = tf.constant(1.5, name="other")
    return lambda: ([other],)


@form(raises=ValueError)
def an_operation_of_another_graph_with_the_same_name():
    tf.no_op(name="op")
    with tf.Graph().as_default():
        other = tf.no_op(name="op")
    return lambda: (other,)


@form(raises=ValueError)
def a_variable_of_another_graph():
    with tf.Graph().as_default():
        other = tf1.get_variable("v", initializer=1.5)
    return lambda: ({"v": other},)


@form(raises=ValueError)
def a_tensor_inside_a_function():
    inside = []

    @tf.function
    def function(x: tf.Tensor) -> tf.Tensor:
        inside.append(x + 1.0)
        return inside[0]

    function(tf.constant(1.5))
    return lambda: (inside[0],)


@form(raises=ValueError)
def a_name_without_a_tensor():
    tf.no_op(name="op")
    return lambda: ("op:0",)


@form(raises=ValueError)
def a_name_with_a_malformed_output():
    tf.constant(1.5, name="constant")
    return lambda: ("constant:first",)


@form(raises=errors.InaccessibleTensorError)
def an_operation_that_may_not_be_fetched():
    y = tf.identity(tf.constant(1.5), name="y")
    y.graph.prevent_fetching(y.op)
    return lambda: ([y],)


@form(raises=TypeError)
def nothing():
    return lambda: (None,)


@form(raises=TypeError)
def a_number():
    return lambda: (37,)


@pytest.mark.slow
def test_error(form: Any, alike: Any) -> None:
    """The same error at every run, and a run in between that works."""

    def program(new_session: Any, attempt: Any) -> None:
        write = form.build()
        initializer = tf1.global_variables_initializer()
        x = tf1.placeholder(tf.float32, name="good")
        good = tf.multiply(x, 2.0)
        with new_session() as session:
            session.run(initializer)
            for i in range(3):
                attempt(session.run, *write())
                attempt(session.run, good, {x: i})

    assert alike(program).errors == [form.raises.__name__, ""] * 3
