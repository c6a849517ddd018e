"""What a call of a function adds to the global step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from fastsup.runtime.graph.effects import UNKNOWN
from fastsup.runtime.graph.global_step import GlobalStepWrites

v1 = tf.compat.v1


def once(step: Any, other: Any) -> Any:
    step.assign_add(1)
    other.assign_add(5)
    return other.read_value()


def twice(step: Any, other: Any) -> Any:
    step.assign_add(1)
    return step.assign_add(tf.cast(tf.constant(2), tf.int64))


def by_a_function_in_it(step: Any, other: Any) -> Any:
    @tf.function
    def inner() -> None:
        step.assign_add(4)

    inner()
    return other.read_value()


def only_read(step: Any, other: Any) -> Any:
    return step + other.assign_add(1)


def by_a_number_that_changes(step: Any, other: Any) -> Any:
    return step.assign_add(other)


def backwards(step: Any, other: Any) -> Any:
    return step.assign_sub(1)


def set_to_a_number(step: Any, other: Any) -> Any:
    return step.assign(7)


def in_a_conditional(step: Any, other: Any) -> Any:
    return tf.cond(other > 0, lambda: step.assign_add(1), lambda: other.read_value())


def in_a_loop(step: Any, other: Any) -> Any:
    return tf.while_loop(lambda i: i < other, lambda i: [i + step.assign_add(1)], [tf.constant(0, tf.int64)])[0]


def by_either_of_two(step: Any, other: Any) -> Any:
    return tf.switch_case(tf.cast(other, tf.int32), [lambda: step.assign_add(1), lambda: step.assign_add(2)])


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize(
    ("body", "added"),
    [
        (once, 1),
        (twice, 3),
        (by_a_function_in_it, 4),
        (only_read, 0),
        (by_a_number_that_changes, UNKNOWN),
        (backwards, UNKNOWN),
        (set_to_a_number, UNKNOWN),
        (in_a_conditional, UNKNOWN),
        (in_a_loop, UNKNOWN),
        (by_either_of_two, UNKNOWN),
    ],
)
def test_what_a_call_adds(body: Callable[[Any, Any], Any], added: int, is_compiled: bool) -> None:
    with tf.Graph().as_default() as graph:
        step = v1.get_variable("step", [], tf.int64, use_resource=True)
        other = v1.get_variable("other", [], tf.int64, use_resource=True)
        result = tf.function(lambda: body(step, other), jit_compile=is_compiled)()
        nothing = tf.constant(1.0)
        writes = GlobalStepWrites(graph, step)
        assert writes.delta_of([result], []) == added
        assert writes.delta_of([result.op], []) == added
        assert writes.delta_of([nothing], []) == 0


def test_two_calls_in_a_run() -> None:
    with tf.Graph().as_default() as graph:
        step = v1.get_variable("step", [], tf.int64, use_resource=True)
        function = tf.function(lambda: step.assign_add(1))
        first, second = function(), function()
        writes = GlobalStepWrites(graph, step)
        assert writes.delta_of([first], []) == 1
        assert writes.delta_of([first, second], []) == UNKNOWN


def test_a_call_that_low_level_control_flow_may_skip() -> None:
    with tf.Graph().as_default() as graph:
        step = v1.get_variable("step", [], tf.int64, use_resource=True)
        taken, _ = tf.raw_ops.Switch(data=tf.constant(1.0), pred=v1.placeholder(tf.bool, []))
        with tf.control_dependencies([tf.identity(taken)]):
            result = tf.function(lambda: step.assign_add(1))()
        assert GlobalStepWrites(graph, step).delta_of([result], []) == UNKNOWN
