"""Lifted functions as steps of StepLoop."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

import fastsup
from fastsup.loop import PeriodicHook, StepLoop


@pytest.fixture(params=[fastsup.function, tf.function, lambda step: step], ids=["fastsup", "tensorflow", "plain"])
def function(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_a_step_without_arguments(function: Any) -> None:
    count = tf.Variable(0)
    step = function(lambda: count.assign_add(1) * 2)
    assert int(StepLoop(step, max_steps=100).run()) == 200
    assert int(count) == 100


def test_the_end_of_an_iterator_ends_the_loop(function: Any) -> None:
    total = tf.Variable(0, dtype=tf.int64)

    def step(iterator: Any, factor: Any, negative: bool = False) -> Any:
        value = next(iterator) * factor
        return total.assign_add(-value if negative else value)

    iterator = iter(tf.data.Dataset.range(10))
    loop = StepLoop(fastsup.bind(function(step), iterator, tf.constant(2, tf.int64), negative=True))
    assert int(loop.run()) == int(total) == -90
    assert loop.steps == 10


def test_out_of_range_without_an_iterator_is_an_error() -> None:
    def step(value: int) -> None:
        raise tf.errors.OutOfRangeError(None, None, f"{value} is too large")

    with pytest.raises(tf.errors.OutOfRangeError, match="5 is too large"):
        StepLoop(fastsup.bind(step, 5)).run()


def test_other_errors_keep_their_class(function: Any) -> None:
    iterator = iter(tf.data.Dataset.range(10))

    def step(iterator: Any) -> Any:
        value = next(iterator)
        with tf.control_dependencies([tf.debugging.assert_less(value, tf.constant(3, tf.int64))]):
            return tf.identity(value)

    loop = StepLoop(fastsup.bind(function(step), iterator))
    with pytest.raises(tf.errors.InvalidArgumentError):
        loop.run()
    assert loop.steps == 3


def test_hooks_see_the_results(function: Any) -> None:
    seen = []

    class Seeing(PeriodicHook):
        def act(self, loop: Any) -> None:
            seen.append(int(loop.result))

    count = tf.Variable(0)
    StepLoop(fastsup.bind(function(lambda by: count.assign_add(by)), 3), [Seeing(every_steps=4)], max_steps=12).run()
    assert seen == [12, 24, 36]


def test_a_bound_step() -> None:
    step = fastsup.bind(max, 3, 5, default=None)
    assert (step.step, step.args, step.kwargs) == (max, (3, 5), {"default": None})
    assert repr(step) == "<fastsup.bind of <built-in function max>>"
    with pytest.raises(TypeError, match="step must be callable, got 3"):
        fastsup.bind(3)  # type: ignore[arg-type]


def test_a_bound_function_is_lifted() -> None:
    function = fastsup.function(lambda x: x + 1.0)
    assert float(StepLoop(fastsup.bind(function, tf.constant(1.0)), max_steps=3).run()) == 2.0
    assert function.lifted, function.why_not_lifted
