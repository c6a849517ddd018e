"""Sums in a compiled loop have the last bits that they have in a compiled step: XLA adds up in the same order."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import fastsup
from fastsup.loop import StepLoop

STEPS = 6


class Network:
    """A network of dense layers, of which a step also adds up the weights."""

    def __init__(self, rows: int, widths: list[int]) -> None:
        random = np.random.default_rng(rows)

        def normal(*shape: int) -> Any:
            return random.normal(size=shape).astype(np.float32)

        pairs = list(itertools.pairwise(widths))
        self.weights = [tf.Variable(0.3 * normal(*pair)) for pair in pairs]
        self.biases = [tf.Variable(0.1 * normal(width)) for width in widths[1:]]
        self.total = tf.Variable(0.0)
        self.arrays = normal(STEPS * rows, widths[0]), normal(STEPS * rows, widths[-1])
        self.train = fastsup.function(self.step, jit_compile=True)

    def step(self, x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            for weight, bias in zip(self.weights, self.biases, strict=True):
                x = tf.matmul(x, weight) + bias
                if weight is not self.weights[-1]:
                    x = tf.sigmoid(x)
            loss = tf.reduce_sum((x - y) ** 2) + 0.01 * tf.add_n([tf.reduce_sum(w * w) for w in self.weights])
        variables = self.weights + self.biases
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(0.01 * gradient)
        self.total.assign_add(loss)
        return {"loss": loss}


@pytest.mark.parametrize(
    ("rows", "widths"), [(32, [5, 64, 32, 10]), (17, [2, 64, 8, 10]), (8, [13, 16, 1]), (1, [8, 5, 3]), (33, [7, 1])]
)
def test_the_last_bits(rows: int, widths: list[int]) -> None:
    states = []
    for fuse in ("never", "always"):
        network = Network(rows, widths)
        batches = fastsup.ArrayBatches(network.arrays, rows, epochs=3)
        result = StepLoop(fastsup.bind_batches(network.train, batches), fuse=fuse).run()
        variables = [*network.weights, *network.biases, network.total]
        states.append([value.numpy().tobytes() for value in (*variables, result["loss"])])
    assert states[0] == states[1]
