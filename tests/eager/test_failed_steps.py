"""What a step that fails leaves behind, and what its error says: as after TensorFlow's own call, in every executor."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import fastsup
from fastsup.eager.function import Function

pytestmark = pytest.mark.timeout(120)

GOOD, BAD = 0, 9
# The order in which the single-threaded executor sorts operations changes from graph to graph.
TIMES = 6


class State:
    """The variables of a step, and what else it changes."""

    def __init__(self) -> None:
        self.counters = [tf.Variable(0) for _ in range(4)]
        self.table = tf.Variable([1, 2, 3])
        self.batches = iter(tf.data.Dataset.range(3))
        self.generator = tf.random.Generator.from_seed(1)
        self.places = tf.lookup.experimental.DenseHashTable(tf.int32, tf.int32, -1, empty_key=0, deleted_key=-1)

    def count(self, number: int, by: Any = 1) -> None:
        self.counters[number].assign_add(tf.cast(by, tf.int32))

    def values(self) -> Any:
        return [int(counter) for counter in self.counters], self.generator.state.numpy().tolist()


STEPS: dict[str, Callable[[State, Any], Any]] = {}


def step(body: Callable[[State, Any], Any]) -> Callable[[State, Any], Any]:
    STEPS[body.__name__] = body
    return body


@step
def counters_around_an_index(state: State, index: Any) -> Any:
    state.count(0)
    row = tf.gather(state.table, index)
    state.count(1)
    state.count(2, row)
    return row


@step
def counters_behind_two_indices(state: State, index: Any) -> Any:
    """Either index may be bad. Whatever the order, one counter would be left out."""
    state.count(0, tf.gather(state.table, index))
    state.count(1, tf.gather([1, 1, 1, 1, 1, 1, 1, 1, 1, 1], index))
    return index


@step
def an_end_of_the_data(state: State, index: Any) -> Any:
    state.count(0)
    value = next(state.batches)
    state.count(1)
    state.count(2, value)
    return value


@step
def an_end_of_the_data_in_a_function(state: State, index: Any) -> Any:
    @tf.function
    def change(value: Any) -> Any:
        state.count(0)
        state.count(1, value)
        return value + 1

    return change(next(state.batches))


@step
def an_end_of_the_data_in_a_function_that_stays_a_call(state: State, index: Any) -> Any:
    @tf.function(experimental_attributes={"_noinline": True})
    def change() -> Any:
        state.count(0)
        state.count(1, next(state.batches))
        return state.counters[0] + 1

    state.count(2)
    return change()


@step
def random_numbers_beside_the_data(state: State, index: Any) -> Any:
    number = state.generator.uniform([])
    return number + tf.cast(next(state.batches), tf.float32)


@step
def an_assertion(state: State, index: Any) -> Any:
    state.count(0)
    tf.debugging.assert_less(index, 3)
    state.count(1)
    state.count(2, index)
    return index


@step
def a_table_that_refuses_a_key(state: State, index: Any) -> Any:
    state.count(0)
    state.places.insert(tf.reshape(9 - index, [1]), [1])
    state.count(1)
    return index


@step
def a_result_that_nobody_takes(state: State, index: Any) -> Any:
    """It isn't computed, and so can't fail: the end of the data is what fails here."""

    @tf.function
    def change(place: Any) -> Any:
        state.count(0)
        return tf.gather([1.0], place), place

    change(index)
    return next(state.batches) + tf.cast(change(index)[1], tf.int64)


def failing_by_value(name: str, compute: Callable[[Any], Any]) -> None:
    """Registers a step that computes something of the index, which is 0 or 9, between two counters."""

    def body(state: State, index: Any) -> Any:
        computed = tf.reduce_sum(tf.cast(compute(index), tf.float32))
        state.count(0)
        state.table.assign(state.table * 2)
        state.count(1, computed)
        return computed

    STEPS[name] = body


failing_by_value("power", lambda i: tf.pow(tf.constant([2, 3]), 1 - i))
failing_by_value("segment", lambda i: tf.math.unsorted_segment_sum([1.0, 2.0], tf.stack([i, 0]), 3))
failing_by_value("slice", lambda i: tf.slice([1.0, 2.0], [i], [1]))
failing_by_value("top_k", lambda i: tf.math.top_k([1.0, 2.0], i)[0])
failing_by_value("reshape", lambda i: tf.reshape(tf.ones([4]), [2 + i, 2]))
failing_by_value("remainder", lambda i: 7 % (9 - i))
failing_by_value("size", lambda i: tf.fill([5 - i], 1.0))
failing_by_value("repetition", lambda i: tf.tile([1.0], [5 - i]))
failing_by_value("part of a text", lambda i: tf.strings.length(tf.strings.substr("abc", i, 1)))
failing_by_value("matrix", lambda i: tf.linalg.lu(tf.zeros([2, 2]) + tf.cast(i < 1, tf.float32) * tf.eye(2))[0])


@step
def shapes_that_do_not_fit(state: State, index: Any) -> Any:
    state.count(0)
    total = tf.reduce_sum(tf.zeros([index + 2]) + tf.zeros([tf.minimum(index, 1) + 2]))
    state.count(1)
    state.count(2, total)
    return total


@step
def an_index_that_waits_for_the_data(state: State, index: Any) -> Any:
    value = tf.cast(next(state.batches), tf.int32)
    row = tf.gather(state.table, index + 0 * value)
    state.count(0, value + 1)
    state.count(1, row)
    state.count(2)
    return row + value


def run(decorate: Callable[[Any], Any], body: Callable[[State, Any], Any]) -> tuple[Any, Any]:
    """The function, and what a good call and some that fail return and leave behind."""
    state = State()
    function = decorate(functools.partial(body, state))
    seen: list[Any] = []
    for index in [GOOD, BAD, BAD, GOOD, GOOD, BAD]:
        try:
            seen.append(float(function(tf.constant(index))))
        except tf.errors.OpError as error:
            seen.append(type(error))
        seen.append(state.values())
    return function, seen


# Steps of which two parts can fail, each without the other.
UNORDERED = {
    "counters_behind_two_indices",
    "an_end_of_the_data_in_a_function_that_stays_a_call",
}
EXECUTORS = ("auto", "inline", "thread_pool", "single_threaded")
# The default tests have one executor for each step.
CASES = [
    pytest.param(name, executor, marks=() if executor == EXECUTORS[number % 3] else pytest.mark.slow)
    for number, name in enumerate(STEPS)
    for executor in EXECUTORS
    if executor != "single_threaded" or name not in UNORDERED  # No order leaves the same behind.
]


@pytest.mark.one_device("how far other devices are when a step fails on one is up to chance, in TensorFlow too")
@pytest.mark.parametrize(("name", "executor"), CASES)
def test_what_a_failed_step_leaves_behind(name: str, executor: str) -> None:
    body = STEPS[name]
    _, expected = run(tf.function, body)
    assert any(isinstance(value, type) for value in expected)
    decorate = fastsup.function(executor=executor, fallback="raise")
    for _ in range(TIMES):
        function, seen = run(decorate, body)
        assert function.lifted
        assert seen == expected


@pytest.mark.one_device("where devices share a step, auto takes the thread pool")
@pytest.mark.parametrize("name", STEPS)
def test_auto_takes_the_single_threaded_executor_where_it_leaves_the_same_behind(name: str) -> None:
    function = fastsup.function(functools.partial(STEPS[name], State()), fallback="raise")
    function(tf.constant(GOOD))
    assert (function.executor == "single_threaded") == (name not in UNORDERED)


@pytest.mark.one_device("where devices share a step, auto takes the thread pool")
def test_auto_takes_the_single_threaded_executor_for_two_datasets() -> None:
    first, second = (iter(tf.data.Dataset.range(5)) for _ in range(2))
    total = tf.Variable(0, dtype=tf.int64)
    function = fastsup.function(lambda: total.assign_add(next(first) + next(second)))
    assert [int(function()) for _ in range(3)] == [0, 2, 6]
    assert function.executor == "single_threaded"


# The text of errors.


def failing(kind: str) -> tuple[Function, list[Any], str]:
    """A function, the arguments of a call that fails, and the name of the operation in the error."""
    if kind == "index":
        return fastsup.function(lambda i: tf.gather([1.0, 2.0], i, name="row") * 2.0), [tf.constant(5)], "row"
    if kind == "end of the data":
        numbers = iter(tf.data.Dataset.range(0))
        return fastsup.function(lambda: next(numbers) + 1), [], "IteratorGetNext"
    if kind == "in a function":
        inner = tf.function(lambda x: tf.debugging.check_numerics(x, "here", name="checked"))
        return fastsup.function(lambda x: inner(x) + 1.0), [tf.constant(float("nan"))], "checked"
    count = tf.Variable(0)

    @fastsup.function
    def after_an_effect(i: Any) -> Any:
        count.assign_add(1)
        return tf.gather([1.0, 2.0], i, name="row")

    return after_an_effect, [tf.constant(5)], "row"


@pytest.mark.first_cases(2)
@pytest.mark.one_device("an accelerator's kernels make zeros of a bad index; auto takes the thread pool")
@pytest.mark.parametrize("kind", ["index", "end of the data", "in a function", "after an effect"])
def test_an_error_names_its_operation(kind: str) -> None:
    function, args, name = failing(kind)
    # A program that goes on after another error than the end of the data isn't to wait for a search each time.
    executor = "single_threaded" if kind == "end of the data" else "inline"
    for _ in range(2):
        with pytest.raises(tf.errors.OpError) as raised:
            function(*args)
        assert re.search(rf"{{{{node (\S*/)?{name}}}}}", raised.value.message)
        assert function.executor == executor
