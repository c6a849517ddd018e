"""Every kind of value fed to every type of tensor: what arrives, or the error, is what TensorFlow makes of it."""

from __future__ import annotations

import array
import collections
import decimal
import enum
import fractions
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import dtypes

tf1 = tf.compat.v1

DTYPES = [
    tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.complex64, tf.complex128, tf.bool,
    tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint32, tf.uint64,
    tf.qint8, tf.quint16, dtypes.int4, dtypes.float8_e5m2, tf.string,
]  # fmt: skip


class Color(enum.IntEnum):
    RED = 3


class MyInt(int):
    pass


class MyFloat(float):
    pass


class AsArray:
    def __init__(self, values: Any) -> None:
        self.values = np.array(values)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.values if dtype is None else self.values.astype(dtype)


class BrokenArray:
    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise LookupError("no array today")


Point = collections.namedtuple("Point", "x y")

# Made again for every run: some can be read only once.
VALUES = {
    "zero": lambda: 0,
    "one": lambda: 1,
    "minus_one": lambda: -1,
    "true": lambda: True,
    "false": lambda: False,
    "two": lambda: 2,
    "over_int8": lambda: 200,
    "over_uint8": lambda: 300,
    "over_float16": lambda: 70_000,
    "odd_over_float16": lambda: 2049,
    "odd_over_bfloat16": lambda: 257,
    "over_int32": lambda: 2**31,
    "odd_over_float32": lambda: 2**24 + 1,
    "least_int32": lambda: -(2**31),
    "odd_over_float64": lambda: 2**53 + 1,
    "largest_int64": lambda: 2**63 - 1,
    "over_int64": lambda: 2**63,
    "over_uint64": lambda: 2**64,
    "huge": lambda: -(2**70),
    "far_over_float64": lambda: 10**400,
    "float": lambda: 1.5,
    "whole_float": lambda: 2.0,
    "large_float": lambda: 1e300,
    "nan": lambda: float("nan"),
    "infinity": lambda: float("-inf"),
    "complex": lambda: 1 + 2j,
    "fraction": lambda: fractions.Fraction(1, 2),
    "decimal": lambda: decimal.Decimal("1.5"),
    "enum": lambda: Color.RED,
    "subclass_of_int": lambda: MyInt(5),
    "large_subclass_of_int": lambda: MyInt(2**40 + 1),
    "subclass_of_float": lambda: MyFloat(2.5),
    "none": lambda: None,
    "text": lambda: "é",
    "number_as_text": lambda: "1",
    "empty_text": lambda: "",
    "bytes": lambda: b"a\0b\xff",
    "bytearray": lambda: bytearray(b"ab"),
    "memoryview": lambda: memoryview(b"ab"),
    "list": lambda: [1, 2],
    "tuple": lambda: (1, 2),
    "namedtuple": lambda: Point(1, 2),
    "nested": lambda: [[1, 2], (3, 4)],
    "mixed": lambda: [1, 2.5],
    "bools": lambda: [True, False],
    "texts": lambda: ["é", b"b", ""],
    "text_and_number": lambda: ["a", 1],
    "numbers_too_large": lambda: [300, 2**31],
    "huge_numbers": lambda: [2**70],
    "negative_numbers": lambda: [-1, -200],
    "with_none": lambda: [1, None],
    "ragged": lambda: [[1], [2, 3]],
    "empty_list": list,
    "lists_of_nothing": lambda: [[], []],
    "list_of_arrays": lambda: [np.array([1, 2]), np.array([3, 4])],
    "list_of_scalars": lambda: [np.float64(1.5), np.int8(2)],
    "range": lambda: range(3),
    "deque": lambda: collections.deque([1, 2]),
    "generator": lambda: (i for i in range(3)),
    "iterator": lambda: iter([1, 2]),
    "set": lambda: {1},
    "dictionary": lambda: {"a": 1},
    "array_module": lambda: array.array("d", [1.5, 2.5]),
    "object": object,
    "class": lambda: int,
    "with_an_array": lambda: AsArray([1.5, 2.5]),
    "with_a_broken_array": BrokenArray,
    "numpy_float": lambda: np.float64(1.5),
    "numpy_half": lambda: np.float16(1.5),
    "numpy_int": lambda: np.int64(2**40 + 1),
    "numpy_small_int": lambda: np.int8(-1),
    "numpy_bool": lambda: np.bool_(True),
    "numpy_complex": lambda: np.complex64(1 + 2j),
    "numpy_text": lambda: np.str_("é"),
    "numpy_bytes": lambda: np.bytes_(b"ab"),
    "numpy_date": lambda: np.datetime64("2020-01-01"),
    "float64s": lambda: np.array([1.5, -2.5]),
    "float32s": lambda: np.array([1.5, -2.5], np.float32),
    "int64s": lambda: np.array([2**40, -1]),
    "uint8s": lambda: np.array([200, 1], np.uint8),
    "boolean_array": lambda: np.array([True, False]),
    "complexes": lambda: np.array([1 + 2j]),
    "bfloat16s": lambda: np.array([1.5, 2.5], tf.bfloat16.as_numpy_dtype),
    "dates": lambda: np.array(["2020-01-01"], "datetime64[D]"),
    "records": lambda: np.array([(1, 2.5)], [("a", "i4"), ("b", "f4")]),
    "big_endian": lambda: np.array([1.5, 2.5], ">f4"),
    "big_endian_ints": lambda: np.array([1, 2], ">i4"),
    "scalar_array": lambda: np.array(2.5),
    "empty_array": lambda: np.zeros([0, 3]),
    "strided": lambda: np.arange(10, dtype=np.float32)[::3],
    "reversed": lambda: np.arange(5, dtype=np.int32)[::-1],
    "transposed": lambda: np.arange(6, dtype=np.float32).reshape(2, 3).T,
    "fortran": lambda: np.asfortranarray(np.arange(6, dtype=np.int64).reshape(2, 3)),
    "broadcast": lambda: np.broadcast_to(np.float32(1.5), (2, 2)),
    "misaligned": lambda: np.frombuffer(b"\0" + np.arange(3, dtype=np.float32).tobytes(), np.float32, offset=1),
    "matrix": lambda: np.asmatrix([[1, 2]]),
    "masked": lambda: np.ma.array([1.0, 2.0], mask=[True, False]),
    "texts_of_numpy": lambda: np.array(["é", "bc"]),
    "bytes_of_numpy": lambda: np.array([b"a", b"bc\0"]),
    "object_array": lambda: np.array([1, 2.5], object),
    "object_array_of_texts": lambda: np.array([b"a", "é"], object),
    "object_array_of_nothing": lambda: np.array([None, None]),
    "object_scalar": lambda: np.array(b"a", object),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_every_value(alike: Any, dtype: tf.DType) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        x = tf1.placeholder(dtype, name="x")
        y = tf.identity(x, name="y")
        with new_session() as session:
            for make_value in VALUES.values():
                for _ in range(2):
                    attempt(session.run, y, {x: make_value()})

    errors = alike(program).errors
    assert any(errors)
    assert not all(errors)


SHAPED_VALUES = [
    1.5, [], [1.0], [1.0, 2.0, 3.0], [[1.0, 2.0, 3.0]], [[1.0], [2.0]], [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]],
    [[[1.0, 2.0, 3.0]]], np.zeros([0, 3]), np.zeros([3, 0]), np.zeros([2, 3], np.float32), np.float32(1.5),
    np.zeros([2, 3, 1], np.float32), np.zeros([5, 3], np.float32),
]  # fmt: skip


@pytest.mark.parametrize(
    "shape", [None, [], [3], [None], [2, 3], [None, 3], [2, None], [None, None], [0], [None, 0], [1, None, 3]], ids=str
)
def test_every_shape(alike: Any, shape: Any) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        x = tf1.placeholder(tf.float32, shape, name="x")
        y = tf.identity(x, name="y")
        with new_session() as session:
            for value in SHAPED_VALUES * 2:
                attempt(session.run, [y], {x: value})

    errors = alike(program).errors
    assert set(errors) <= {"", "ValueError"}
    assert ("ValueError" in errors) == (shape is not None)
    assert "" in errors


def test_shapes_known_after_the_first_run(alike: Any) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        x = tf1.placeholder(tf.float32, name="x")
        z = tf1.placeholder(tf.float32, [None, None], name="z")
        y = tf.size(x) + tf.size(z)
        with new_session() as session:

            def attempt_all() -> None:
                for shape in ([2, 3], [4, 3], [3], [4, 5]):
                    attempt(session.run, y, {x: np.zeros(shape), z: [[1.0]]})
                    attempt(session.run, [y], {z: np.zeros(shape, np.float32), x: 0})

            attempt_all()
            x.set_shape([None, 3])
            attempt_all()
            z.set_shape([4, None])
            x.set_shape([4, 3])
            attempt_all()

    errors = alike(program).errors
    assert 0 < errors[:8].count("ValueError") < errors[8:16].count("ValueError") < errors[16:].count("ValueError")
