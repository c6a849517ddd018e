"""Errors in the single-threaded executor: they name the operation and its line, as TensorFlow's do."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import fastsup

v1 = tf.compat.v1

pytestmark = pytest.mark.skipif(
    os.environ.get("FASTSUP_TEST_WORLD") == "v1", reason="the executor refuses reference variables and old control flow"
)

BAD = {}


def bad(build: Any) -> Any:
    """Marks a function that builds a graph, and returns the fetches and feeds of a run that fails."""
    BAD[build.__name__] = build
    return build


def fed(shape: Any = None, dtype: Any = tf.float32) -> Any:
    return v1.placeholder(dtype, shape)


@bad
def an_addition():
    x, y = fed(), fed()
    z = tf.add(x + 1.0, y, name="sum") * 2.0
    return [z], {x: [1.0, 2.0, 3.0], y: [1.0, 2.0, 3.0, 4.0]}


@bad
def a_product_of_matrices():
    x = fed([None, None])
    return tf.matmul(x, tf.ones([4, 2]), name="product"), {x: np.ones([2, 3])}


@bad
def numbers_that_are_none():
    x = fed([])
    y = tf.debugging.check_numerics(tf.math.log(x), "the logarithm", name="checked")
    return {"y": y}, {x: -1.0}


@bad
def an_index_out_of_range():
    x = fed([None], tf.int32)
    return tf.gather(tf.constant([1.0, 2.0, 3.0]), x, name="gathered") + 1.0, {x: [0, 7]}


@bad
def a_row_of_a_variable():
    x = fed([None], tf.int32)
    table = v1.get_variable("table", [5, 2])
    return tf.nn.embedding_lookup(table, x, name="looked_up"), {x: [5]}


@bad
def an_assertion():
    x = fed([])
    with tf.control_dependencies([v1.Assert(x < 1.0, ["too large:", x], name="check")]):
        return tf.identity(x, name="behind"), {x: 5.0}


@bad
def a_reshape():
    x = fed()
    return tf.reshape(x, [2, 2], name="reshaped"), {x: [1.0, 2.0, 3.0]}


@bad
def a_concatenation():
    x = fed([2, None])
    return tf.concat([x, tf.ones([1, 3])], 0, name="joined"), {x: np.ones([2, 4])}


@bad
def a_placeholder_that_is_not_fed():
    x = v1.placeholder(tf.float32, [2, None], name="x")
    return tf.identity(x, name="y"), None


@bad
def a_variable_that_is_not_initialised():
    v = v1.get_variable("v", initializer=1.0, collections=[])
    return v + 1.0, None


@bad
def the_end_of_an_iterator():
    return v1.data.make_one_shot_iterator(tf.data.Dataset.range(0)).get_next(name="next") + 1, None


@bad
def an_iterator_that_is_not_initialised():
    return v1.data.make_initializable_iterator(tf.data.Dataset.range(2)).get_next(name="next"), None


@bad
def a_text_that_is_no_number():
    x = fed(dtype=tf.string)
    return tf.strings.to_number(x, name="number"), {x: "seven"}


@bad
def an_image_that_is_none():
    x = fed([], tf.string)
    return tf.io.decode_png(x, name="image"), {x: b"nothing"}


@bad
def bytes_of_the_wrong_length():
    x = fed([None], tf.string)
    return tf.io.decode_raw(x, tf.int32, name="raw"), {x: [b"12345"]}


@bad
def a_slice():
    x = fed([None])
    return tf.slice(x, [2], [5], name="slice"), {x: [1.0, 2.0, 3.0]}


@bad
def an_element_of_too_short_a_vector():
    x = fed([None])
    return x[7], {x: [1.0, 2.0, 3.0]}


@bad
def a_label_out_of_range():
    labels = fed([None], tf.int32)
    logits = tf.ones([2, 3])
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits, name="loss"), {labels: [1, 3]}


@bad
def a_table_that_is_not_initialised():
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [1]), -1, name="table")
    return table.lookup(tf.constant(["a"]), name="found"), None


@bad
def a_file_that_is_not_there():
    return tf.io.read_file("no/such/file", name="contents"), None


@bad
def a_division_by_zero():
    x = fed([], tf.int32)
    return v1.div(tf.constant([1, 2]), x, name="quotient"), {x: 0}


@bad
def a_checkpoint_that_is_not_there():
    v1.get_variable("v", initializer=1.0)
    saver = v1.train.Saver()
    return saver.saver_def.restore_op_name, {saver.saver_def.filename_tensor_name: "no/such/checkpoint"}


@bad
def an_update_behind_a_failing_loss():
    """The step has an effect, but not before it fails."""
    x, y = fed([None]), fed([None])
    w = v1.get_variable("w", initializer=2.0)
    loss = tf.reduce_sum(tf.subtract(w * x, y, name="difference") ** 2)
    return [v1.train.GradientDescentOptimizer(0.1).minimize(loss), loss], {x: [1.0, 2.0], y: [1.0, 2.0, 3.0]}


def described(new_session: Any, build: Any, **kwargs: Any) -> tuple[Any, ...]:
    with tf.Graph().as_default():
        fetches, feeds = build()
        init = v1.global_variables_initializer()
        with new_session(**kwargs) as session:
            session.run(init)
            errors = []
            for _ in range(2):
                with pytest.raises(tf.errors.OpError) as raised:
                    session.run(fetches, feeds)
                error = raised.value
                errors.append((type(error), error.op and error.op.name, str(error.node_def), error.message))
    assert errors[0] == errors[1]
    return errors[0]


@pytest.mark.parametrize("build", BAD.values(), ids=BAD.keys())
def test_the_same_error_as_tensorflows(build: Any) -> None:
    expected, error = (
        described(new_session, build, **kwargs)
        for new_session, kwargs in ((v1.Session, {}), (fastsup.Session, {"executor": "single_threaded"}))
    )
    assert error[:3] == expected[:3]
    assert error[1] is not None
    # TensorFlow names each operation that has failed, and each path that its error has come by; the first is the cause.
    assert first_part(error[3]) == first_part(expected[3])


def first_part(message: str) -> list[str]:
    lines = message.replace("1 root error(s) found.", "").replace("2 root error(s) found.", "").strip().splitlines()
    return [line for line in lines if line.strip()][:2]
