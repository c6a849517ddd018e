"""What a step changes without reading its input is changed as a whole or not at all in the step that finds the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import fastsup

v1 = tf.compat.v1


def iterator_of_batches() -> Any:
    iterator = v1.data.make_initializable_iterator(tf.data.Dataset.range(8).batch(4, drop_remainder=True))
    v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
    return iterator


def batches() -> Any:
    return tf.cast(iterator_of_batches().get_next(), tf.float32)


def variable(**settings: Any) -> Any:
    return v1.get_variable("added_to", initializer=0.0, use_resource=True, **settings)


def change_from_the_input() -> Any:
    return v1.assign_add(variable(), tf.reduce_sum(batches()))


def change_after_the_input() -> Any:
    with tf.control_dependencies([batches()]):
        return v1.assign_add(variable(), 1.0)


def change_without_input() -> Any:
    return v1.assign_add(variable(), 1.0)


def count_of_evaluations() -> Any:
    count = v1.assign_add(variable(collections=[v1.GraphKeys.LOCAL_VARIABLES, v1.GraphKeys.EVAL_STEP]), 1.0)
    return tf.group(tf.reduce_sum(batches()), count)


def change_beside_the_input() -> Any:
    return tf.group(tf.reduce_sum(batches()), v1.assign_add(variable(), 1.0))


def change_before_the_input() -> Any:
    with tf.control_dependencies([v1.assign_add(variable(), 1.0)]):
        return tf.reduce_sum(batches() * 1.0)


def change_beside_input_read_by_a_function() -> Any:
    iterator = iterator_of_batches()

    @tf.function
    def following() -> Any:
        return tf.reduce_sum(iterator.get_next())

    return tf.group(following(), v1.assign_add(variable(), 1.0))


def change_beside_input_read_by_a_function_of_a_function() -> Any:
    iterator = iterator_of_batches()

    @tf.function
    def following() -> Any:
        return iterator.get_next()

    @tf.function
    def total() -> Any:
        return tf.reduce_sum(following())

    return tf.group(total(), v1.assign_add(variable(), 1.0))


@pytest.mark.parametrize(
    ("build", "beside"),
    [
        (change_from_the_input, False),
        (change_after_the_input, False),
        (change_without_input, False),
        (count_of_evaluations, False),
        (change_beside_the_input, True),
        (change_before_the_input, False),
        (change_beside_input_read_by_a_function, True),
        (change_beside_input_read_by_a_function_of_a_function, True),
    ],
)
def test_what_keeps_a_step_off_the_single_threaded_executor(build: Callable[[], Any], beside: bool) -> None:
    with tf.Graph().as_default():
        step = build()
        with fastsup.train.MonitoredSession() as session:
            assert (session.raw_session().executor == "single_threaded") == (not beside)
            session.run(step)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tensorflow", "fastsup"])
def test_a_metric_of_constants_is_whole_after_the_end_of_the_input(kind: str) -> None:
    train = v1.train if kind == "tensorflow" else fastsup.train
    # The order in which operations are sorted changes from graph to graph.
    for _ in range(20):
        with tf.Graph().as_default():
            _, update = v1.metrics.mean(tf.ones([4]))
            total, count = v1.get_collection(v1.GraphKeys.METRIC_VARIABLES)
            step = tf.group(update, tf.reduce_sum(batches()))
            with train.MonitoredSession(train.ChiefSessionCreator()) as session:
                raw = session.raw_session() if kind == "fastsup" else session._tf_sess()
                with pytest.raises(tf.errors.OutOfRangeError):
                    while True:
                        raw.run(step)
                assert raw.run(total) == raw.run(count)
