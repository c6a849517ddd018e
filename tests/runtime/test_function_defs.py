"""A graph's list of its functions has each that its serialised form has: what is proven of one must hold for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.framework import function as functions

from fastsup.runtime.graph.operations import function_defs

tf1 = tf.compat.v1


def control_flow() -> None:
    """With gradients, for which TensorFlow replaces the functions of the forward pass."""
    x = tf1.placeholder(tf.float32, [])
    branch = tf1.cond(x > 1.0, lambda: tf1.cond(x > 2.0, lambda: x * x, lambda: x), lambda: x * 2.0)
    loop = tf1.while_loop(lambda i, total: i < 3, lambda i, total: [i + 1, total * x], [0, branch])
    tf.switch_case(tf.cast(x, tf.int32), [lambda: x, lambda: x + 1.0])
    tf1.gradients(loop[1], x)


def tf_functions() -> None:
    v = tf1.get_variable("v", initializer=1.0, use_resource=True)

    @tf.function
    def inner(x: Any) -> Any:
        return v.assign_add(x)

    @tf.function
    def outer(x: Any) -> Any:
        for _ in tf.range(3):
            x = x + inner(x)
        return x

    tf1.gradients(outer(tf.constant(1.0)), v)


def recorded_functions() -> None:
    """Functions with their own gradients: TensorFlow's older kind."""

    @functions.Defun(tf.float32, tf.float32)
    def gradient(x: Any, dy: Any) -> Any:
        return x * dy

    @functions.Defun(tf.float32, grad_func=gradient)
    def inner(x: Any) -> Any:
        return tf.identity(x)

    @functions.Defun(tf.float32)
    def outer(x: Any) -> Any:
        return inner(x) * 2.0

    x = tf.constant(1.0)
    tf1.gradients(outer(x), x)


def datasets() -> None:
    dataset = tf.data.Dataset.range(9).map(lambda x: x * 2).filter(lambda x: x > 3).batch(2)
    tf1.data.make_initializable_iterator(dataset.interleave(tf.data.Dataset.from_tensor_slices)).get_next()
    tf.map_fn(lambda x: x * 2.0, tf.constant([1.0, 2.0]))


def imported() -> None:
    with tf.Graph().as_default() as other:
        control_flow()
        tf_functions()
    tf.import_graph_def(other.as_graph_def(), name="imported")


@pytest.mark.parametrize(
    "build", [control_flow, tf_functions, recorded_functions, datasets, imported], ids=lambda f: f.__name__
)
def test_none_is_missing(graph: tf.Graph, build: Callable[[], None]) -> None:
    build()
    expected = {function.signature.name: function for function in graph.as_graph_def().library.function}
    found = {function.signature.name: function for function in function_defs(graph)}
    assert expected or not tf1.control_flow_v2_enabled()
    assert found == expected


def test_those_added_later_are_found(graph: tf.Graph) -> None:
    assert function_defs(graph) == []
    tf_functions()
    first = {function.signature.name for function in function_defs(graph)}
    datasets()
    assert first < {function.signature.name for function in function_defs(graph)}
