"""Feeds of several tensors at once: sparse, sliced and ragged values, tuples, and values that stay in the runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework.indexed_slices import IndexedSlicesValue

tf1 = tf.compat.v1

form = pytest.mark.form


@form
def sparse_fetches_of_which_a_part_is_fed():
    sparse = tf1.sparse_placeholder(tf.float32)
    doubled = tf.SparseTensor(sparse.indices, sparse.values * 2.0, sparse.dense_shape)
    return lambda: ([doubled, sparse], {sparse: ([[0, 1]], [1.5], [2, 2])})


@form
def sparse_values():
    x = tf1.sparse_placeholder(tf.float32, [None, None], name="x")
    y = tf.sparse.to_dense(x)
    return lambda: ([x, y], {x: tf1.SparseTensorValue([[0, 1], [2, 0]], [1.0, 2.0], [3, 3])})


@form
def sparse_values_of_a_sparse_fetch():
    x = tf1.sparse_placeholder(tf.int64, name="x")
    z = tf1.sparse_placeholder(tf.int64, name="z")
    y = tf.sparse.add(x, z)
    value = tf1.SparseTensorValue(np.array([[0, 1]]), np.array([5]), np.array([2, 2]))
    return lambda: (y, {x: value, z: (value.indices, [7], [2, 2])})


@form(raises=ValueError)
def a_sparse_value_of_the_wrong_shape():
    x = tf1.sparse_placeholder(tf.float32)
    y = tf.sparse.to_dense(x)
    return lambda: (y, {x: ([1, 2, 3], [1.0], [2])})


@form
def indexed_slices(make: Any):
    x = tf.IndexedSlices(make.floats("values"), tf1.placeholder(tf.int32, name="indices"))
    y = tf.convert_to_tensor(x.values) * 2.0
    return lambda: ([x, y], {x: IndexedSlicesValue([[1.0]], [3], None)})


@form
def indexed_slices_with_a_shape(make: Any):
    placeholders = [make.floats("values"), tf1.placeholder(tf.int32), tf1.placeholder(tf.int32)]
    x = tf.IndexedSlices(*placeholders)
    y = x.values * 2.0
    return lambda: ([x, y], {x: ([[1.0]], [3], [5, 1])})


@form
def ragged_values():
    x = tf1.ragged.placeholder(tf.float32, 1, name="x")
    y = tf.reduce_sum(x, axis=1)
    return lambda: ([x, y], {x: tf1.ragged.constant_value([[1.0, 2.0], [], [3.0]], dtype=np.float32)})


@form
def nested_tuples(make: Any):
    x, y, z = make.floats("x"), make.floats("y"), make.floats("z")
    total = x + 10.0 * y + 100.0 * z
    return lambda: (total, {(x, (y, z)): (1, (2, 3))})


@form(raises=ValueError)
def nested_tuples_with_sparse_values(make: Any):
    x, y = make.floats("x"), tf1.sparse_placeholder(tf.float32, name="y")
    total = x + tf.sparse.to_dense(y)
    return lambda: (total, {(x, y): (1.0, tf1.SparseTensorValue([[0]], [1.0], [2]))})


@form(raises=ValueError)
def nested_tuples_of_other_structure(make: Any):
    x, y = make.floats("x"), make.floats("y")
    total = x + y
    return lambda: (total, {(x, y): (1.0, 2.0, 3.0)})


@form(raises=ValueError)
def the_same_tensor_in_two_tuples(make: Any):
    x, y = make.floats("x"), make.floats("y")
    total = x + y
    return lambda: (total, {(x, y): (1.0, 2.0), x: 3.0})


def test_form(form: Any, alike: Any) -> None:
    form.check(alike, lambda session, arguments: session.run(*arguments))


def test_handles(alike: Any, make: Any) -> None:
    """A value that stays in the runtime: fed through its placeholder, and in the place of a tensor."""

    def program(new_session: Any, attempt: Any) -> None:
        kept = tf.constant([[1.0, 2.0]], name="kept")
        handle = tf1.get_session_handle(kept)
        x = make.floats(shape=[1, 2])
        y = tf.add(x, 1.0)
        with new_session() as session:
            held = attempt(session.run, handle)
            holder, value = tf1.get_session_tensor(held.handle, tf.float32, name="held")
            for _ in range(3):
                attempt(session.run, value * 1.0, {holder: held.handle})
                attempt(session.run, y, {x: held})
                attempt(session.run, [y, x], {x: held})
                attempt(session.run, y, {x: [[5.0, 6.0]]})
            attempt(held.eval)
            held.delete()
            attempt(held.eval)
            attempt(session.run, value, {holder: held.handle})

    assert [i for i, error in enumerate(alike(program).errors) if error] == [14, 15]
