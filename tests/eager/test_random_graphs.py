"""Random expressions give the same, bit for bit, as with `tf.function`: the optimizer must see the same graph."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import fastsup

GRAPHS = 300 if os.environ.get("FASTSUP_HYPOTHESIS") == "long" else 6
EXECUTORS = ("inline", "single_threaded")

ROWS, COLUMNS = 5, 7
SHAPES = ((ROWS, COLUMNS), (COLUMNS,), (ROWS, 1), ())


def root(x: Any) -> Any:
    return tf.sqrt(tf.abs(x) + 0.5)


def cube(x: Any) -> Any:
    return x * x * x


def inverse(x: Any) -> Any:
    return 1.0 / (1.5 + x * x)


def power(x: Any) -> Any:
    return tf.pow(x, 2.0)


UNARY: list[Callable[[Any], Any]] = [
    tf.sin, tf.cos, tf.tanh, tf.sigmoid, tf.exp, tf.square, tf.negative, tf.nn.relu, tf.nn.softplus, tf.abs,
    tf.identity, root, cube, inverse, power,
]  # fmt: skip


def numbers(source: np.random.Generator, *shape: int) -> Any:
    return source.standard_normal(shape).astype(np.float32)


class Expression:
    """A random expression of arguments, variables and constants, the same in each call.

    Args:
      seed: what it is made from.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        source = np.random.default_rng(seed)
        self.variables = [tf.Variable(numbers(source, *shape)) for shape in SHAPES]
        self._captured = tf.constant(numbers(source, ROWS, COLUMNS))

    def __call__(self, *arguments: Any) -> Any:
        choose = random.Random(self._seed)
        leaves = [*arguments, *self.variables, self._captured, tf.constant(1.7)]
        # TensorFlow adds up in place where it can, and begins with a term that no other operation takes any longer at
        # that moment. So no two sums have a term in common, and no two leaves are the same.
        shifts = itertools.count(1)

        def term(depth: int) -> Any:
            if depth == 0 or choose.random() < 0.15:
                return choose.choice(leaves) * (1.0 + 0.01 * next(shifts))
            kind = choose.randrange(7)
            if kind <= 1:
                return choose.choice(UNARY)(term(depth - 1))
            if kind <= 3:
                # A sum of products, or of quotients, with a common factor.
                factor = term(depth - 1)
                terms = [term(depth - 1) for _ in range(choose.randrange(2, 5))]
                if kind == 3 and choose.random() < 0.4:
                    factor = tf.abs(factor) + 0.7
                    terms = [other / factor for other in terms]
                else:
                    terms = [factor * other if choose.random() < 0.5 else other * factor for other in terms]
                return total(terms)
            if kind == 4:
                return total([term(depth - 1) for _ in range(choose.randrange(2, 6))])
            if kind == 5:
                return term(depth - 1) * term(depth - 1)
            return term(depth - 1) - choose.choice((0.1, 2.0, 1.0)) * term(depth - 1)

        def total(terms: Sequence[Any]) -> Any:
            result = terms[0]
            for other in terms[1:]:
                result = result + other
            return result

        return term(4) + tf.zeros(SHAPES[0])


def value(expression: Expression) -> Callable[..., Any]:
    return expression


def gradients(expression: Expression) -> Callable[..., Any]:
    def run(*arguments: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            loss = tf.reduce_sum(expression(*arguments))
        return tape.gradient(loss, [*arguments, *expression.variables], unconnected_gradients="zero")

    return run


def products_of_hessians(expression: Expression) -> Callable[..., Any]:
    def run(*arguments: Any) -> Any:
        with tf.GradientTape() as outer:
            outer.watch(arguments)
            with tf.GradientTape() as inner:
                inner.watch(arguments)
                loss = tf.reduce_sum(expression(*arguments))
            first = inner.gradient(loss, arguments, unconnected_gradients="zero")
            weighted = tf.add_n([tf.reduce_sum(one * (0.5 + one)) for one in first])
        return outer.gradient(weighted, arguments, unconnected_gradients="zero")

    return run


def in_a_function(expression: Expression) -> Callable[..., Any]:
    inner = tf.function(expression)
    return lambda *arguments: inner(*arguments) * arguments[0] + arguments[0] * tf.sin(arguments[1])


def updates(expression: Expression) -> Callable[..., Any]:
    inner = gradients(expression)

    def run(*arguments: Any) -> Any:
        changes = inner(*arguments)[len(arguments) :]
        for variable, change in zip(expression.variables, changes, strict=True):
            variable.assign_sub(1e-3 * tf.clip_by_value(change, -1.0, 1.0))
        return expression(*arguments)

    return run


def product_rule(x: Any) -> Any:
    return x * tf.sin(x) + x * tf.cos(x)


def quotients(x: Any) -> Any:
    return tf.sin(x) / (x * x + 1.0) + tf.cos(x) / (x * x + 1.0)


def gradient_of_a_cube(x: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        cubes = x * x * x
    return tape.gradient(cubes, x)


def hessian(x: Any) -> Any:
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            loss = tf.reduce_sum(x * x * x * tf.sin(x))
        gradient = inner.gradient(loss, x)
    return outer.jacobian(gradient, x)


def a_layer(x: Any) -> Any:
    return keras.layers.Lambda(lambda x: x * tf.sigmoid(x) + x * 0.1)(x)


def a_residual_block(x: Any) -> Any:
    source = np.random.default_rng(3)
    weights, bias = tf.constant(numbers(source, 16, 16)), tf.constant(numbers(source, 16))
    return tf.nn.gelu(tf.nn.bias_add(x[None] @ weights, bias) + x) + tf.nn.relu(tf.nn.bias_add(x[None] @ weights, bias))


@pytest.mark.parametrize("formula", [product_rule, quotients, gradient_of_a_cube, hessian, a_layer, a_residual_block])
@pytest.mark.parametrize("executor", ["thread_pool", "inline", "single_threaded"])
def test_a_formula(formula: Callable[[Any], Any], executor: str) -> None:
    function = tf.function(formula)
    lifted = fastsup.function(function, executor=executor, fallback="raise")
    source = np.random.default_rng(0)
    for _ in range(10):
        x = tf.constant(numbers(source, 16))
        np.testing.assert_array_equal(lifted(x), function(x))
    assert lifted.lifted


def as_bytes(results: Any, expression: Expression) -> list[bytes]:
    return [tensor.numpy().tobytes() for tensor in (*tf.nest.flatten(results), *expression.variables)]


def outcome(make: Callable[[Expression], Callable[..., Any]], seed: int, decorate: Callable[[Any], Any]) -> Any:
    expression = Expression(seed)
    known = make is not gradients or seed % 2
    sizes = SHAPES[:3] if known else ((None, COLUMNS), (None,), (ROWS, None))
    signature = [tf.TensorSpec(shape, tf.float32) for shape in sizes]
    function = decorate(tf.function(make(expression), input_signature=signature))
    source = np.random.default_rng(seed + 1)
    calls = [[tf.constant(numbers(source, *shape)) for shape in SHAPES[:3]] for _ in range(2)]
    return [as_bytes(function(*arguments), expression) for arguments in calls]


@pytest.mark.first_cases(2)
@pytest.mark.parametrize("make", [value, gradients, products_of_hessians, in_a_function, updates])
def test_random_expressions(make: Callable[[Expression], Callable[..., Any]]) -> None:
    different = []
    for seed in range(GRAPHS):
        expected = outcome(make, seed, lambda function: function)
        executor = EXECUTORS[seed % len(EXECUTORS)]
        lifted = lambda function: fastsup.function(function, executor=executor, fallback="raise")  # noqa: B023, E731
        if outcome(make, seed, lifted) != expected:
            different.append(seed)
    assert not different, f"{len(different)} of {GRAPHS} expressions differ: {different}"
