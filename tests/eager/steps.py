"""Steps of many kinds: the same program for `tf.function` and for `fastsup.function`.

Each entry of STEPS makes a fresh `Step`. What a step returns, and its variables after the last call, are compared.
"""

from __future__ import annotations

import collections
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import keras
import numpy as np
import tensorflow as tf

STEPS: dict[str, Callable[[], Step]] = {}
# The single-threaded executor's last bits differ, or it can't run the step.
NOT_SINGLE_THREADED: set[str] = set()
# Not lifted, with a part of the reason.
NOT_LIFTED: dict[str, str] = {}


@dataclass
class Step:
    """One step.

    Attributes:
      function: the Python function, or a `tf.function` with its own options.
      arguments: gives the positional arguments of a call, by its number.
      keywords: gives its keyword arguments.
      variables: what the step changes.
      close: is called at the end.
    """

    function: Any
    arguments: Callable[[int], Sequence[Any]] = lambda number: ()
    keywords: Callable[[int], dict[str, Any]] = lambda number: {}
    variables: Callable[[], Sequence[Any]] = lambda: ()
    close: Callable[[], Any] = lambda: None
    kept: list[Any] = field(default_factory=list)


def step(make: Callable[[], Step]) -> Callable[[], Step]:
    STEPS[make.__name__] = make
    return make


def floats(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def batch(*shape: int) -> Callable[[int], Sequence[Any]]:
    return lambda number: (tf.constant(floats(*shape, seed=number)),)


@step
def a_call_that_stays_and_calls_others() -> Step:
    total = tf.Variable(0.0)
    add = tf.function(lambda x: total.assign_add(x))

    @tf.function(experimental_attributes={"_noinline": True})
    def add_twice(x: Any) -> Any:
        add(x)
        return add(tf.tanh(x)) * 2.0

    outer = tf.function(lambda x: add_twice(x) + add(x))
    return Step(lambda x: outer(x) - add_twice(x), batch(), variables=lambda: [total])


# Sums: the optimizer orders their terms by names.


@step
def a_sum_of_arguments() -> Step:
    captured, weight = tf.constant(floats(64, seed=5)), tf.Variable(floats(64, seed=6))
    inner = tf.function(lambda d, b: d + captured + b * 1.3 + weight)
    return Step(
        lambda z, y, x, a: (z + y + x + a, z * 2.0 + captured + y + weight * 3.0 + x, inner(x, z) + y + a + captured),
        lambda number: [tf.constant(floats(64, seed=4 * number + place)) for place in range(4)],
    )


@step
def a_sum_in_a_function_after_a_change() -> Step:
    captured = [tf.constant(floats(16, seed=number)) for number in range(4)]
    first, second = tf.Variable(floats(16, seed=7)), tf.Variable(floats(16, seed=8))

    @tf.function
    def total(x: Any) -> Any:
        second.assign_add(0.1 * x)
        return first * 1.1 + second * 1.3 + captured[0] + captured[1] + captured[2] + captured[3] + x

    def body(x: Any) -> Any:
        first.assign_add(x)
        return total(x), total(x * 0.013)

    return Step(body, batch(16), variables=lambda: [first, second])


# Variables.


@step
def sgd() -> Step:
    v = tf.Variable(floats(10))

    def run(x: Any) -> Any:
        v.assign_sub(0.1 * (v - x))
        return tf.reduce_sum(v)

    return Step(run, batch(10), variables=lambda: [v])


@step
def counter_without_arguments() -> Step:
    v = tf.Variable(0, dtype=tf.int64)
    return Step(lambda: v.assign_add(2), variables=lambda: [v])


@step
def no_result() -> Step:
    v = tf.Variable(1.0)

    def run(x: Any) -> None:
        v.assign_add(tf.reduce_mean(x))

    return Step(run, batch(3, 2), variables=lambda: [v])


@step
def string_variable() -> Step:
    v = tf.Variable("a")
    return Step(lambda: v.assign(tf.strings.substr(tf.strings.join([v, "b"]), 0, 9)), variables=lambda: [v])


@step
def variable_of_any_shape() -> Step:
    v = tf.Variable([0.0], shape=tf.TensorShape(None))

    def run(x: Any) -> Any:
        v.assign(tf.concat([[tf.reduce_sum(v)], x], 0))
        return tf.size(v)

    return Step(run, lambda number: (tf.constant(floats(1 + number % 3)),), variables=lambda: [v])


@step
def variables_as_arguments() -> Step:
    a, b = tf.Variable(floats(4)), tf.Variable(floats(4, seed=1))

    def run(v: Any, x: Any) -> Any:
        v.assign_add(x)
        return v * 2.0

    return Step(run, lambda number: ((a, b)[number // 5 % 2], tf.ones([4])), variables=lambda: [a, b])


@step
def one_variable_twice() -> Step:
    a, b = tf.Variable(1.0), tf.Variable(2.0)

    def run(v: Any, w: Any) -> Any:
        v.assign_add(w)
        return v - w

    return Step(run, lambda number: ((a, b), (a, a))[number % 2], variables=lambda: [a, b])


@step
def variables_of_the_first_call() -> Step:
    made: list[Any] = []

    def run(x: Any) -> Any:
        if not made:
            made.append(tf.Variable(tf.ones([3]), name="made"))
        return made[0].assign_add(x)

    return Step(run, batch(3), variables=lambda: made)


@step
def variables_initialised_by_an_argument() -> Step:
    made: list[Any] = []

    def run(x: Any) -> Any:
        if not made:
            made.append(tf.Variable(x * 2.0))
        return made[0].assign_add(x)

    return Step(run, batch(3), variables=lambda: made)


@step
def scatter_updates() -> Step:
    v = tf.Variable(tf.zeros([6, 2]))

    def run(i: Any, x: Any) -> Any:
        v.scatter_nd_add(i[:, None], x)
        v.scatter_update(tf.IndexedSlices(x[:1], i[:1]))
        return tf.gather(v, i)

    return Step(
        run,
        lambda number: (tf.constant([number % 6, 3]), tf.constant(floats(2, 2, seed=number))),
        variables=lambda: [v],
    )


class Counting(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.total = tf.Variable(0.0)

    def __call__(self, x: Any) -> Any:
        return self.total.assign_add(tf.reduce_sum(x))


@step
def method_of_a_module() -> Step:
    module = Counting()
    return Step(module.__call__, batch(5), variables=lambda: module.variables)


@step
def module_as_argument() -> Step:
    modules = [Counting(), Counting()]

    def run(module: Any, x: Any) -> Any:
        return module(x)

    return Step(
        run,
        lambda number: (modules[number % 2], tf.ones([5])),
        variables=lambda: [module.total for module in modules],
    )


@step
def callable_as_argument() -> Step:
    def run(f: Any, x: Any) -> Any:
        return f(x)

    return Step(run, lambda number: ((tf.sin, tf.cos)[number % 2], tf.constant(floats(4, seed=number))))


# Arguments and results.


@step
def keywords_and_defaults() -> Step:
    def run(x: Any, scale: float = 2.0, *, shift: Any = None) -> Any:
        return x * scale + (0.0 if shift is None else shift)

    def keywords(number: int) -> dict[str, Any]:
        return ({}, {"scale": 3.0}, {"shift": tf.constant(1.0)}, {"shift": 2.5, "scale": 1.5})[number % 4]

    return Step(run, batch(4), keywords)


@step
def positional_and_keyword_of_one_argument() -> Step:
    def run(a: Any, b: Any) -> Any:
        return a - b

    one, two = tf.constant(1.0), tf.constant(2.0)
    return Step(
        run,
        lambda number: ((one, two), (one,), ())[number % 3],
        lambda number: ({}, {"b": two}, {"b": two, "a": one})[number % 3],
    )


@step
def star_arguments() -> Step:
    def run(*args: Any, **kwargs: Any) -> Any:
        return tf.add_n([*args, *kwargs.values()])

    return Step(
        run,
        lambda number: [tf.constant(float(i + number)) for i in range(1 + number % 3)],
        lambda number: {"z": tf.constant(1.0), "y": tf.constant(2.0)} if number % 2 else {},
    )


@step
def python_values() -> Step:
    def run(x: Any, count: int, flag: bool, name: str) -> Any:
        for _ in range(count):
            x = x + 1.0 if flag else x - 1.0
        return x, name + "!"

    return Step(run, lambda number: (tf.ones([2]), number % 3, number % 2 == 0, "ab"[number % 2]))


@step
def one_and_true() -> Step:
    def run(x: Any, value: Any) -> Any:
        return x + (10.0 if value is True else 1.0 if isinstance(value, int) else 0.5)

    return Step(run, lambda number: (tf.ones([]), (1, True, 1.0)[number % 3]))


@step
def arrays() -> Step:
    def run(x: Any, y: Any) -> Any:
        return x @ y

    return Step(run, lambda number: (floats(2, 3, seed=number), floats(3, 2, seed=number).astype(np.float32)))


@step
def arrays_of_any_kind() -> Step:
    def run(x: Any) -> Any:
        return tf.cast(x, tf.float64) + 1.0

    values = [
        np.float32(2.0),
        np.arange(3),
        np.asfortranarray(floats(3, 2)),
        np.array([True, False]),
        np.array("a" != "b"),
    ]
    return Step(run, lambda number: (values[number % len(values)],))


@step
def lists_of_python_numbers() -> Step:
    return Step(lambda x: tf.reduce_sum(x), lambda number: ([1.0, 2.0 + number % 2],))


@step
def nested_structures() -> Step:
    def run(data: Any) -> Any:
        return {"sum": data["b"] + data["a"][0], "rest": [data["a"][1], (data["b"], None)]}

    def arguments(number: int) -> Sequence[Any]:
        x, y, z = (tf.constant(floats(2, seed=number + i)) for i in range(3))
        return ({"b": x, "a": (y, z)},) if number % 2 else ({"a": (y, z), "b": x},)

    return Step(run, arguments)


Pair = collections.namedtuple("Pair", ["first", "second"])


@step
def namedtuples() -> Step:
    def run(pair: Any) -> Any:
        return Pair(pair.second, [pair.first + 1.0])

    return Step(run, lambda number: (Pair(tf.constant(float(number)), tf.ones([2])),))


@step
def ordered_dicts() -> Step:
    def run(data: Any) -> Any:
        return collections.OrderedDict([("z", data["y"]), ("a", data["x"])])

    return Step(run, lambda number: (collections.OrderedDict([("y", tf.ones([2])), ("x", tf.zeros([3]))]),))


@step
def one_tensor_twice() -> Step:
    def run(data: Any, x: Any) -> Any:
        return data["b"] - 2.0 * data["a"] + 3.0 * x

    def arguments(number: int) -> Sequence[Any]:
        x, y = tf.constant(floats(2, seed=number)), tf.constant(floats(2, seed=number + 1))
        return ({"b": x, "a": x}, x) if number == 0 else ({"b": x, "a": y}, y)

    return Step(run, arguments)


@step
def results_that_are_arguments() -> Step:
    return Step(lambda x, y: (y, x, x, {"y": y}), lambda number: (tf.ones([2]), tf.constant(number)))


@step
def results_that_are_constants() -> Step:
    return Step(lambda x: (tf.constant([1, 2]), 3.5, "text", None, True, x), batch(2))


@step
def results_that_are_captured() -> Step:
    constant, v = tf.constant(floats(3)), tf.Variable(floats(3))

    def run() -> Any:
        v.assign_add(constant)
        return constant, v, v.read_value(), constant

    return Step(run, variables=lambda: [v])


@step
def many_results() -> Step:
    return Step(lambda x: [x + float(i) for i in range(100)], batch(2))


@step
def many_arguments() -> Step:
    return Step(lambda xs: tf.add_n(xs), lambda number: ([tf.constant(float(number + i)) for i in range(100)],))


@step
def changing_shapes() -> Step:
    return Step(lambda x: tf.reduce_sum(x, 0), lambda number: (tf.constant(floats(1 + number % 4, 3, seed=number)),))


@step
def relaxed_shapes() -> Step:
    function = tf.function(lambda x: tf.reduce_sum(tf.nn.relu(x)), reduce_retracing=True)
    return Step(function, lambda number: (tf.constant(floats(1 + number % 9, seed=number)),))


@step
def changing_types() -> Step:
    types = [tf.float32, tf.float64, tf.int32, tf.bfloat16, tf.complex64, tf.uint8, tf.half]
    return Step(
        lambda x: x * x + x, lambda number: (tf.cast(tf.constant([1.0, 2.0, 3.0]), types[number % len(types)]),)
    )


@step
def scalars_and_empty_tensors() -> Step:
    shapes = [(), (0,), (1, 0, 2), (1,) * 8]
    return Step(lambda x: (tf.shape(x), x + 1.0), lambda number: (tf.ones(shapes[number % 4]),))


@step
def input_signature() -> Step:
    function = tf.function(
        lambda x, y: (tf.reduce_sum(x), y),
        input_signature=[tf.TensorSpec([None, 2], tf.float32), tf.TensorSpec([], tf.int32)],
    )

    def arguments(number: int) -> Sequence[Any]:
        rows = tf.constant(floats(1 + number % 3, 2, seed=number))
        return ((rows, tf.constant(number)), (rows.numpy(), np.int32(number)), (rows, number), (rows.numpy(), 7))[
            number % 4
        ]

    return Step(function, arguments)


@step
def ragged_arguments_and_results() -> Step:
    def run(x: Any) -> Any:
        return x * 2.0, tf.reduce_sum(x, axis=1)

    return Step(run, lambda number: (tf.ragged.constant([[1.0, 2.0], [3.0] * (1 + number % 3)]),))


@step
def sparse_arguments_and_results() -> Step:
    def run(x: Any) -> Any:
        return tf.sparse.reorder(x), tf.sparse.to_dense(x)

    return Step(run, lambda number: (tf.sparse.from_dense([[0.0, 1.0 + number], [2.0, 0.0]]),))


@step
def indexed_slices() -> Step:
    def run(x: Any) -> Any:
        return tf.IndexedSlices(x.values * 2.0, x.indices, x.dense_shape)

    return Step(
        run, lambda number: (tf.IndexedSlices(tf.ones([2, 2]), tf.constant([0, number % 4]), tf.constant([4, 2])),)
    )


@step
def string_features() -> Step:
    def run(x: Any) -> Any:
        return tf.strings.to_hash_bucket_fast(tf.strings.lower(x), 100), tf.strings.join([x, "-"]), tf.strings.length(x)

    return Step(run, lambda number: (tf.constant([f"Word{number}", "", "é" * 50]),))


@step
def parsed_examples() -> Step:
    def run(x: Any) -> Any:
        return tf.io.parse_example(x, {"a": tf.io.FixedLenFeature([2], tf.float32), "b": tf.io.VarLenFeature(tf.int64)})

    def example(number: int) -> bytes:
        features = {
            "a": tf.train.Feature(float_list=tf.train.FloatList(value=[number, 2.0])),
            "b": tf.train.Feature(int64_list=tf.train.Int64List(value=range(number % 3))),
        }
        return bytes(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())

    return Step(run, lambda number: (tf.constant([example(number), example(number + 1)]),))


@step
def large_constants() -> Step:
    inside, captured = floats(300, 300), tf.constant(floats(300, 300, seed=1))
    return Step(lambda x: tf.linalg.matvec(tf.constant(inside) + captured, x), batch(300))


# Operations.


@step
def linear_algebra() -> Step:
    def run(x: Any) -> Any:
        square = x @ tf.transpose(x) + tf.eye(4)
        return (
            tf.linalg.cholesky(square),
            tf.linalg.inv(square),
            tf.einsum("ij,kj->ik", x, x),
            tf.signal.fft(tf.cast(x, tf.complex64)),
        )

    return Step(run, batch(4, 6))


@step
def images() -> Step:
    def run(x: Any) -> Any:
        return (
            tf.image.resize(x, [4, 4]),
            tf.nn.conv2d(x, tf.ones([2, 2, 3, 1]), 1, "SAME"),
            tf.nn.max_pool2d(x, 2, 2, "SAME"),
        )

    return Step(run, batch(2, 6, 6, 3))


@step
def sorting_and_gathering() -> Step:
    def run(x: Any) -> Any:
        top = tf.math.top_k(x, 3)
        return top, tf.gather(x, top.indices, batch_dims=1), tf.unique(tf.cast(x[0] * 3.0, tf.int32)), tf.where(x > 0.0)

    return Step(run, batch(3, 8))


@step
def gradients_inside() -> Step:
    v = tf.Variable(floats(3, 3))

    def run(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.tanh(x @ v) ** 2)
        v.assign_sub(0.1 * tape.gradient(loss, v))
        return loss

    return Step(run, batch(4, 3), variables=lambda: [v])


@step
def second_derivatives_inside() -> Step:
    def run(x: Any) -> Any:
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = tf.reduce_sum(tf.sin(x) * x)
            gradient = inner.gradient(y, x)
        return outer.gradient(gradient, x)

    return Step(run, batch(5))


@step
def custom_gradients() -> Step:
    @tf.custom_gradient
    def clipped(x: Any) -> Any:
        return tf.identity(x), lambda dy: tf.clip_by_value(dy, -0.1, 0.1)

    def run(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(clipped(x) ** 2)
        return tape.gradient(y, x)

    return Step(run, batch(5))


@step
def embedding_gradients() -> Step:
    table = tf.Variable(floats(20, 4))
    optimizer = keras.optimizers.SGD(0.1)

    def run(i: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.embedding_lookup(table, i) ** 2)
        gradient = tape.gradient(loss, table)
        table.scatter_sub(tf.IndexedSlices(0.1 * gradient.values, gradient.indices))
        return loss

    return Step(run, lambda number: (tf.constant([number % 20, 3, 3]),), variables=lambda: [table], kept=[optimizer])


@step
def asserted_values() -> Step:
    def run(x: Any) -> Any:
        tf.debugging.assert_less(x, 100.0)
        return tf.debugging.check_numerics(x, "x") * 2.0

    return Step(run, batch(3))


@step
def nested_functions() -> Step:
    v = tf.Variable(floats(4))

    @tf.function
    def inner(x: Any) -> Any:
        v.assign_add(x)
        return v * 2.0

    return Step(lambda x: inner(x) + inner(x + 1.0), batch(4), variables=lambda: [v])


@step
def python_functions() -> Step:
    seen: list[float] = []

    def look(x: Any) -> Any:
        seen.append(float(x[0]))
        return x * 2.0

    def run(x: Any) -> Any:
        y = tf.py_function(look, [x], tf.float32)
        z = tf.numpy_function(lambda value: value + np.float32(1.0), [x], tf.float32)
        return y, z

    return Step(run, batch(3), variables=lambda: [tf.constant(seen)])


@step
def python_function_that_writes_variables() -> Step:
    v = tf.Variable(1.0)

    def run(x: Any) -> Any:
        before = v.read_value()
        with tf.control_dependencies([before]):
            written = tf.py_function(lambda value: v.assign_add(value), [tf.reduce_sum(x)], tf.float32)
        return before, written

    return Step(run, batch(3), variables=lambda: [v])


# Control flow.


@step
def conditions() -> Step:
    v = tf.Variable(0.0)

    def run(x: Any) -> Any:
        return v.assign_add(1.0) if tf.reduce_sum(x) > 0.0 else v.assign_sub(0.5)

    return Step(run, batch(3), variables=lambda: [v])


@step
def nested_conditions() -> Step:
    def run(x: Any) -> Any:
        deep = lambda: tf.cond(x > 2.0, lambda: x * 3.0, lambda: x * 2.0)  # noqa: E731
        return tf.cond(x > 0.0, lambda: tf.cond(x > 1.0, deep, lambda: x + 1.0), lambda: -x)

    return Step(run, lambda number: (tf.constant(number % 7 - 3.0),))


NOT_SINGLE_THREADED.add("nested_conditions")


@step
def cases() -> Step:
    branches = [lambda: tf.constant(1.0), lambda: tf.constant(2.0), lambda: tf.constant(3.0)]
    return Step(lambda i: tf.switch_case(i, branches), lambda number: (tf.constant(number % 4),))


@step
def while_loops() -> Step:
    v = tf.Variable(1.0)

    def run(x: Any) -> Any:
        i = 0
        while tf.reduce_sum(x) < 50.0 and i < 20:
            x = x * 1.5 + v
            v.assign_add(0.1)
            i += 1
        return x, i

    return Step(run, lambda number: (tf.constant([1.0, 2.0 + number]),), variables=lambda: [v])


@step
def loops_over_tensor_arrays() -> Step:
    def run(x: Any) -> Any:
        values = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
        for i in tf.range(tf.shape(x)[0]):
            values = values.write(i, x[i] * tf.cast(i, tf.float32))
        return values.stack()

    return Step(run, batch(5, 2))


@step
def scans_and_maps() -> Step:
    def run(x: Any) -> Any:
        return tf.scan(lambda a, b: a * 0.5 + b, x), tf.map_fn(lambda a: a * a, x), tf.vectorized_map(tf.sin, x)

    return Step(run, batch(5, 2))


@step
def gradients_of_loops() -> Step:
    v = tf.Variable(floats(3, 3) * 0.1)

    def run(x: Any) -> Any:
        with tf.GradientTape() as tape:
            y = x
            for _ in tf.range(4):
                y = tf.tanh(y @ v)
            loss = tf.reduce_sum(y)
        v.assign_sub(0.1 * tape.gradient(loss, v))
        return loss

    return Step(run, batch(2, 3), variables=lambda: [v])


# State outside variables.


@step
def tables() -> Step:
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2]), -1)
    return Step(lambda x: (table.lookup(x), table.size()), lambda number: (tf.constant(["a", "c", "ab"[number % 2]]),))


@step
def mutable_tables() -> Step:
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0)

    def run(key: Any) -> Any:
        table.insert(key, table.lookup(key) + 1.0)
        return table.lookup(key), table.size()

    return Step(run, lambda number: (tf.constant([number % 5], tf.int64),), kept=[table])


@step
def queues() -> Step:
    queue = tf.queue.FIFOQueue(10, [tf.float32], [[2]])

    def run(x: Any) -> Any:
        queue.enqueue(x)
        return queue.dequeue(), queue.size()

    return Step(run, batch(2))


NOT_SINGLE_THREADED.add("queues")


@step
def iterators_as_arguments() -> Step:
    iterators = [iter(tf.data.Dataset.range(1000).map(lambda x: x * 2).batch(2)) for _ in range(3)]
    return Step(lambda iterator: next(iterator) + 1, lambda number: (iterators[number // 7 % 3],))


@step
def a_function_that_reads_on_from_where_its_argument_was_read() -> Step:
    iterator = iter(tf.data.Dataset.range(1000))
    last = tf.Variable(0, dtype=tf.int64)

    @tf.function
    def read_on(first: Any) -> Any:
        last.assign(next(iterator))
        return 1000 * first + last

    @tf.function(experimental_attributes={"_noinline": True})
    def read_on_in_a_call(first: Any) -> Any:
        last.assign(1000 * last + next(iterator))
        return 1000 * first + last

    return Step(lambda: read_on_in_a_call(read_on(next(iterator))), variables=lambda: [last], kept=[iterator])


@step
def captured_iterators() -> Step:
    iterator = iter(tf.data.Dataset.range(1000).shuffle(10, seed=1).batch(3))
    return Step(lambda: (next(iterator), iterator.get_next_as_optional().get_value()), kept=[iterator])


@step
def datasets_as_arguments() -> Step:
    datasets = [tf.data.Dataset.range(5), tf.data.Dataset.range(7)]

    def run(dataset: Any) -> Any:
        total = tf.constant(0, tf.int64)
        for x in dataset:
            total += x
        return total

    return Step(run, lambda number: (datasets[number % 2],))


@step
def datasets_inside() -> Step:
    return Step(
        lambda x: tf.data.Dataset.from_tensor_slices(x).map(lambda a: a * 2.0).reduce(0.0, lambda a, b: a + b), batch(6)
    )


def summaries() -> Step:
    folder = tempfile.mkdtemp()
    writer = tf.summary.create_file_writer(folder)
    count = tf.Variable(0, dtype=tf.int64)

    def run(x: Any) -> Any:
        with writer.as_default(step=count):
            tf.summary.scalar("loss", tf.reduce_sum(x))
        return count.assign_add(1)

    def events() -> list[Any]:
        writer.flush()
        from tensorflow.python.summary.summary_iterator import summary_iterator

        values = [
            (event.step, value.tag, value.tensor.SerializeToString())
            for name in sorted(os.listdir(folder))
            for event in summary_iterator(os.path.join(folder, name))
            for value in event.summary.value
        ]
        return [tf.constant([f"{at} {tag} {text!r}" for at, tag, text in values])]

    return Step(run, batch(3), variables=events, close=writer.close)


# TensorFlow's summaries need TensorBoard, which it doesn't require any more.
if find_spec("tensorboard") is not None:
    step(summaries)


# Random numbers.


@step
def random_numbers() -> Step:
    tf.random.set_seed(7)
    return Step(lambda x: x + tf.random.normal([3], seed=1) * tf.random.uniform([3]), batch(3))


@step
def random_numbers_and_new_variables() -> Step:
    tf.random.set_seed(7)
    made: list[Any] = []

    def run(x: Any) -> Any:
        if not made:
            made.append(tf.Variable(tf.zeros([3])))
        return made[0].assign_add(tf.nn.dropout(x, 0.5))

    return Step(run, batch(3), variables=lambda: made)


@step
def random_generators() -> Step:
    generator = tf.random.Generator.from_seed(3)
    return Step(lambda: (generator.normal([2]), generator.uniform([2])), variables=lambda: [generator.state])


@step
def stateless_random_numbers() -> Step:
    return Step(lambda seed: tf.random.stateless_normal([3], seed), lambda number: (tf.constant([number, 1]),))


# Keras.


def train_step(layers: Sequence[Any], optimizer: Any, shape: Sequence[int], classes: int = 3, **call: Any) -> Step:
    model = keras.Sequential([keras.Input(shape), *layers])
    metric = keras.metrics.SparseCategoricalAccuracy()
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer.build(model.trainable_variables)

    def run(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = model(x, training=True)
            loss = loss_of(y, logits)
        optimizer.apply(tape.gradient(loss, model.trainable_weights), model.trainable_weights)
        metric.update_state(y, logits)
        return {"loss": loss, "accuracy": metric.result()}

    def arguments(number: int) -> Sequence[Any]:
        labels = np.random.default_rng(number).integers(0, classes, 4)
        return tf.constant(floats(4, *shape, seed=number)), tf.constant(labels)

    return Step(
        run, arguments, variables=lambda: [*model.variables, *optimizer.variables, *metric.variables], kept=[model]
    )


@step
def dense_sgd() -> Step:
    return train_step([keras.layers.Dense(3)], keras.optimizers.SGD(0.1), [6])


@step
def dense_dropout_adam() -> Step:
    layers = [keras.layers.Dense(8, "relu"), keras.layers.Dropout(0.5), keras.layers.Dense(3)]
    return train_step(layers, keras.optimizers.Adam(0.01), [6])


@step
def momentum_and_clipping() -> Step:
    return train_step([keras.layers.Dense(3)], keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=1.0), [6])


@step
def rmsprop_schedule() -> Step:
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    return train_step([keras.layers.Dense(3)], keras.optimizers.RMSprop(schedule), [6])


@step
def moving_average_of_weights() -> Step:
    return train_step([keras.layers.Dense(3)], keras.optimizers.AdamW(0.01, use_ema=True), [6])


@step
def gradient_accumulation() -> Step:
    return train_step([keras.layers.Dense(3)], keras.optimizers.Adam(0.01, gradient_accumulation_steps=3), [6])


@step
def convolution_and_batch_norm() -> Step:
    layers = [
        keras.layers.Conv2D(4, 3, activation="relu"), keras.layers.BatchNormalization(), keras.layers.MaxPool2D(),
        keras.layers.Flatten(), keras.layers.Dense(3),
    ]  # fmt: skip
    return train_step(layers, keras.optimizers.Adam(0.01), [8, 8, 2])


@step
def lstm() -> Step:
    return train_step([keras.layers.LSTM(4), keras.layers.Dense(3)], keras.optimizers.Adam(0.01), [5, 3])


NOT_SINGLE_THREADED.add("lstm")


@step
def gru_with_dropout() -> Step:
    return train_step([keras.layers.GRU(4, dropout=0.2), keras.layers.Dense(3)], keras.optimizers.Adam(0.01), [5, 3])


NOT_SINGLE_THREADED.add("gru_with_dropout")


@step
def attention() -> Step:
    inputs = keras.Input([5, 8])
    x = keras.layers.MultiHeadAttention(2, 4)(inputs, inputs)
    x = keras.layers.LayerNormalization()(x + inputs)
    model = keras.Model(inputs, keras.layers.Dense(3)(keras.layers.GlobalAveragePooling1D()(x)))
    return train_step([model], keras.optimizers.Adam(0.01), [5, 8])


@step
def mixed_precision() -> Step:
    policy = keras.mixed_precision.global_policy()
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        return train_step([keras.layers.Dense(8, "relu"), keras.layers.Dense(3)], keras.optimizers.SGD(0.1), [6])
    finally:
        keras.mixed_precision.set_global_policy(policy)


@step
def keras_metrics() -> Step:
    metrics = [keras.metrics.Mean(), keras.metrics.AUC(num_thresholds=5), keras.metrics.Precision()]

    def run(y: Any, p: Any) -> Any:
        metrics[0].update_state(p)
        for metric in metrics[1:]:
            metric.update_state(y, p)
        return [metric.result() for metric in metrics]

    def arguments(number: int) -> Sequence[Any]:
        return tf.constant([0, 1, number % 2]), tf.sigmoid(tf.constant(floats(3, seed=number)))

    return Step(run, arguments, variables=lambda: [v for metric in metrics for v in metric.variables])


# XLA.


@step
def compiled_by_xla() -> Step:
    v = tf.Variable(floats(4))

    def run(x: Any) -> Any:
        v.assign_add(tf.sin(x) * 0.1)
        return tf.reduce_sum(v * v), x

    return Step(tf.function(run, jit_compile=True), batch(4), variables=lambda: [v])


@step
def partly_compiled_by_xla() -> Step:
    v = tf.Variable(floats(4))

    @tf.function(jit_compile=True)
    def inner(x: Any) -> Any:
        return tf.sin(x) * tf.exp(x) + 1.0

    return Step(lambda x: v.assign(inner(x + v) * 0.1), batch(4), variables=lambda: [v])
