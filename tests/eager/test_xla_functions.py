"""Functions that XLA compiles as a whole: random numbers take less time there, and are the same bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import fastsup
from fastsup.eager.lift import LiftedGraph

pytestmark = pytest.mark.one_device("XLA compiles functions for one CPU alone")


def uniform(seed: Any) -> Any:
    return tf.random.stateless_uniform([5, 3], seed)


def several(seed: Any) -> Any:
    dropped = tf.nn.experimental.stateless_dropout(tf.ones([8]), 0.4, seed)
    return dropped, tf.random.stateless_normal([3], seed), tf.random.stateless_uniform([2], seed, None, None, tf.uint32)


def in_a_loop(seed: Any) -> Any:
    def body(i: Any, total: Any) -> Any:
        return i + 1, total + tf.random.stateless_normal([4], seed + i)

    return tf.while_loop(lambda i, _: i < 3, body, (tf.constant(0), tf.zeros([4])))[1]


def in_a_function(seed: Any) -> Any:
    return tf.function(uniform)(seed) + tf.cond(seed[0] > 0, lambda: uniform(seed + 1), lambda: uniform(seed))


def the_key_itself(seed: Any) -> Any:
    return tf.raw_ops.StatelessRandomGetKeyCounter(seed=seed)


@pytest.mark.first_cases(2)
@pytest.mark.parametrize("body", [uniform, several, in_a_loop, in_a_function, the_key_itself])
def test_the_same_bits(body: Callable[[Any], Any]) -> None:
    ours, theirs = fastsup.function(body, jit_compile=True), tf.function(body, jit_compile=True)
    for number in range(3):
        seed = tf.constant([number, 7])
        found, expected = tf.nest.flatten(ours(seed)), tf.nest.flatten(theirs(seed))
        assert [value.numpy().tobytes() for value in found] == [value.numpy().tobytes() for value in expected]
    assert ours.lifted


def test_a_step_of_a_generator() -> None:
    def run(decorate: Any) -> Any:
        generator = tf.random.Generator.from_seed(5)
        step = decorate(lambda: generator.normal([4]))
        return [step().numpy().tobytes() for _ in range(4)], generator.state.numpy().tolist()

    found = run(lambda step: fastsup.function(step, jit_compile=True, fallback="raise"))
    assert found == run(lambda step: tf.function(step, jit_compile=True))


def test_each_key_has_a_barrier() -> None:
    concrete = tf.function(several, jit_compile=True).get_concrete_function(tf.constant([1, 2]))
    graph = LiftedGraph(concrete).graph
    nodes = [node for function in graph.as_graph_def().library.function for node in function.node_def]
    keys = [node.name for node in nodes if node.op == "StatelessRandomGetKeyCounter"]
    assert len(keys) == 3
    barriers = {node.name: list(node.input) for node in nodes if node.op == "XlaOptimizationBarrier"}
    assert sorted(inputs[0].split(":")[0] for inputs in barriers.values()) == sorted(keys)
    others = [source for node in nodes if node.name not in barriers for source in node.input]
    assert not any(source.split(":")[0] in keys for source in others)


def test_a_function_without_random_numbers_keeps_its_name() -> None:
    function = tf.function(lambda x: x + 1.0, jit_compile=True)
    concrete = function.get_concrete_function(tf.constant(1.0))
    (kept,) = LiftedGraph(concrete).graph.as_graph_def().library.function
    assert kept.signature.name == concrete.function_def.signature.name
