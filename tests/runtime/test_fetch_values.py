"""The value of a fetched tensor: its Python type, dtype, shape and contents, whatever its type and shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import dtypes

tf1 = tf.compat.v1

DTYPES = [
    tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.complex64, tf.complex128, tf.bool,
    tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64,
    tf.qint8, tf.quint8, tf.qint16, tf.quint16, tf.qint32, dtypes.int4, dtypes.uint4, dtypes.float8_e5m2,
    dtypes.float8_e4m3fn, tf.string,
]  # fmt: skip


def values_of(dtype: tf.DType) -> list[Any]:
    """Plain values that the type can hold, its limits among them."""
    if dtype == tf.string:
        return [b"", "é".encode(), b"\xff\0\xfe", b"x" * 1000]
    if dtype == tf.bool:
        return [True, False, True, True]
    if dtype in (dtypes.int4, dtypes.uint4):
        return [0, 1, 7, 3]
    if dtype.is_integer or dtype.is_quantized:
        limits = np.iinfo(np.array([], dtype.as_numpy_dtype).dtype[0] if dtype.is_quantized else dtype.as_numpy_dtype)
        return [0, 1, limits.min, limits.max]
    return [0.0, -0.0, 1.5, float("inf")]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_dtype(alike: Any, dtype: tf.DType) -> None:
    """Scalars come as NumPy's scalar types, everything else as arrays, empty ones too; constants and computed ones."""

    def program(new_session: Any, attempt: Any) -> None:
        values = np.array(values_of(dtype), dtype.as_numpy_dtype)
        square = values.reshape(2, 2)
        whole = tf.constant(values, dtype)
        scalars = [tf.constant(value, dtype) for value in values]
        shaped = [tf.constant(values.reshape(shape), dtype) for shape in ([4, 1], [2, 2], [1, 1, 4])]
        empty = [tf.constant(values[:0].reshape(shape), dtype) for shape in ([0], [0, 3], [2, 0])]
        x = tf1.placeholder(dtype)
        y = tf.identity(x)
        with new_session() as session:
            for _ in range(2):
                for tensor in (whole, scalars[0], scalars[3], shaped[1], empty[1]):
                    attempt(session.run, tensor)
                attempt(session.run, {"all": [whole, scalars, shaped, empty]})
                for value in (values, values[0], square, values[:0], values[::2], square.T):
                    attempt(session.run, [y, {"y": y}], {x: value})

    assert not any(alike(program).errors)


def test_shapes_that_change(alike: Any) -> None:
    """The same plan returns a scalar, then an array, then an empty one."""

    def program(new_session: Any, attempt: Any) -> None:
        rank = tf1.get_variable("rank", initializer=0, use_resource=True)
        shape = tf.fill([rank], 2)
        filled = tf.fill(shape, 1.5)
        with new_session() as session:
            session.run(rank.initializer)
            grow = rank.assign_add(1)
            for _ in range(4):
                attempt(session.run, [filled, shape])
                session.run(grow)
                attempt(session.run, filled)

    assert not any(alike(program).errors)


def test_large_values(alike: Any) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        numbers = tf.range(100_000, dtype=tf.int64)
        texts = tf.strings.as_string(numbers[:1000])
        with new_session() as session:
            for _ in range(3):
                attempt(session.run, (numbers, texts))

    assert not any(alike(program).errors)


def test_random_numbers_come_in_the_same_order(alike: Any) -> None:
    """No step is run twice or left out, and every way of fetching goes on with the same generator."""

    def program(new_session: Any, attempt: Any) -> None:
        tf1.set_random_seed(37)
        numbers = tf.random.uniform([2], seed=1)
        shuffled = tf.random.shuffle(tf.range(5), seed=2)
        with new_session() as session:
            for i in range(150):
                attempt(session.run, [numbers, [numbers], {"both": (numbers, shuffled)}, numbers][i % 4])

    notes = alike(program)
    assert len({str(noted) for noted in notes}) > 140


def test_counters_count_every_run(alike: Any) -> None:
    """Through the first resolution, the cached plans and the choice of an executor: each run happens once."""

    def program(new_session: Any, attempt: Any) -> None:
        calls: list[None] = []
        count = tf1.get_variable("count", initializer=0, use_resource=True)
        add = count.assign_add(1)
        call = tf1.py_func(lambda: np.int64(calls.append(None) or len(calls)), [], tf.int64)
        with new_session() as session:
            session.run(count.initializer)
            for i in range(300):
                session.run([add, (add,), {"add": add, "call": call}][i % 3])
            attempt(session.run, [count, call])
            attempt(lambda: len(calls))

    assert not any(alike(program).errors)
