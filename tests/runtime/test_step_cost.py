"""What the estimate of a step's cost makes of shapes that aren't known before it runs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import fastsup
from fastsup.runtime.graph.cost import StepCost

tf1 = tf.compat.v1


def batches(size: Any, features: int = 64, one_shot: bool = False) -> Any:
    """What a dataset of batches gives: (None, features)."""
    dataset = tf.data.Dataset.from_tensor_slices(np.ones((100, features), np.float32)).repeat().batch(size)
    make = tf1.data.make_one_shot_iterator if one_shot else tf1.data.make_initializable_iterator
    return make(dataset).get_next()


def product_secs(rows: float, inner: float, columns: float) -> float:
    """Seconds of a matrix product, as the estimate has it."""
    return 2 * rows * inner * columns / 2e10


@pytest.mark.parametrize("one_shot", [False, True])
def test_batches_of_a_dataset(graph: tf.Graph, one_shot: bool) -> None:
    product = batches(32, one_shot=one_shot) @ tf.ones([64, 8])
    assert product.shape.as_list() == [None, 8]
    assert StepCost(graph).secs(product.op) == pytest.approx(product_secs(32, 64, 8))


def test_transposed_product(graph: tf.Graph) -> None:
    """As gradients have it: the dimension that isn't known is summed over."""
    x = batches(32)
    product = tf.matmul(x, x @ tf.ones([64, 8]), transpose_a=True)
    assert product.shape.as_list() == [64, 8]
    assert StepCost(graph).secs(product.op) == pytest.approx(product_secs(64, 32, 8))


def test_many_products_at_once(graph: tf.Graph) -> None:
    product = tf.matmul(tf.ones([5, 3, 4]), tf.ones([5, 4, 2]))
    assert StepCost(graph).secs(product.op) == pytest.approx(5 * product_secs(3, 4, 2))


def test_reshaped(graph: tf.Graph) -> None:
    """Rows become more when columns become fewer."""
    tokens = tf.reshape(batches(32), [-1, 16])
    total = tf.abs(tokens)
    assert StepCost(graph).secs(total.op) == pytest.approx(32 * 64 / 1e9)


def test_size_that_nobody_knows(graph: tf.Graph) -> None:
    fed = tf.abs(tf1.placeholder(tf.float32, [None, 10]))
    chosen = tf.abs(batches(tf1.placeholder(tf.int64, [])))
    collected = tf.abs(tf.where(tf.constant([True, False])))
    whatever = tf.abs(tf1.placeholder(tf.float32))
    cost = StepCost(graph)
    assert cost.secs(fed.op) == pytest.approx(1024 * 10 / 1e9)
    assert cost.secs(chosen.op) == pytest.approx(1024 * 64 / 1e9)
    assert cost.secs(collected.op) == pytest.approx(1024 / 1e9)
    assert cost.secs(whatever.op) == pytest.approx(1024 / 1e9)


def test_worth_of_parallelism(graph: tf.Graph) -> None:
    x = tf.ones([1000])
    chain = tf.abs(tf.abs(x))
    beside = tf.abs(x)
    cost = StepCost(graph)
    assert cost.worth_of_parallelism([chain.op.inputs[0].op, chain.op]) == 0
    worth = cost.worth_of_parallelism([chain.op.inputs[0].op, chain.op, beside.op])
    assert math.isclose(worth, 1000 / 1e9)


@pytest.mark.parametrize(("size", "layer", "light"), [(32, 64, True), (4096, 1024, False)])
def test_executor_for_a_network_on_batches(graph: tf.Graph, size: int, layer: int, light: bool) -> None:
    hidden = batches(size)
    weights = [
        tf1.get_variable(f"w{i}", shape, use_resource=True) for i, shape in enumerate([[64, layer], [layer, 10]])
    ]
    for each in weights:
        hidden = tf.nn.relu(hidden @ each)
    tf1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(hidden))
    graph.finalize()
    with fastsup.Session() as session:
        assert (session.executor == "single_threaded") == light
