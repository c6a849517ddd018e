"""Stateful random operations: `tf.random.set_seed` begins the sequences of lifted functions again, as TensorFlow's."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import fastsup
from fastsup.core import StepLoop

pytestmark = pytest.mark.timeout(120)


def noise() -> Any:
    return tf.random.normal([2])


def of_a_seed_of_its_own() -> Any:
    return tf.random.uniform([2], seed=5)


def inside_a_condition() -> Any:
    return tf.cond(tf.random.uniform([]) < 0.5, lambda: tf.random.normal([2]), lambda: tf.zeros([2]))


def beside_a_table() -> Any:
    return tf.cast(TABLES[0].lookup(tf.constant([1, 2], tf.int64)), tf.float32) + tf.random.normal([2])


TABLES: list[Any] = []


@pytest.fixture
def table() -> Any:
    keys = tf.constant([1, 2], tf.int64)
    TABLES.append(tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, keys * 10), -1))
    yield TABLES[-1]
    TABLES.clear()


def draw(decorate: Callable[[Any], Any], body: Callable[[], Any]) -> list[list[float]]:
    """What a function draws after each of several seeds."""
    tf.random.set_seed(1)
    function = decorate(lambda: body())
    drawn = []
    for seed in (None, 1, 2, 1):
        if seed is not None:
            tf.random.set_seed(seed)
        drawn += [function().numpy().tolist() for _ in range(4)]
    return drawn


@pytest.mark.parametrize("executor", ["auto", "thread_pool", "inline", "single_threaded"])
@pytest.mark.parametrize("body", [noise, of_a_seed_of_its_own, inside_a_condition, beside_a_table])
def test_a_seed_begins_the_sequence_anew(body: Callable[[], Any], executor: str, table: Any) -> None:
    expected = draw(tf.function, body)
    assert expected[:4] == expected[4:8]
    lifted = fastsup.function(executor=executor, fallback="raise")
    assert draw(lifted, body) == expected


def test_a_trial_of_executors_goes_on_after_a_seed() -> None:
    def run(decorate: Any) -> list[list[float]]:
        tf.random.set_seed(1)
        step = decorate(lambda x: tf.map_fn(lambda value: value + tf.random.normal([]), x))
        drawn = [step(tf.zeros([3])) for _ in range(5)]
        tf.random.set_seed(1)
        drawn += [step(tf.zeros([3])) for _ in range(200)]
        return [sorted(values.numpy().tolist()) for values in drawn]  # The iterations of a loop run in any order.

    assert run(fastsup.function(fallback="raise")) == run(tf.function)


@pytest.mark.parametrize("executor", ["auto", "inline", "single_threaded"])
def test_a_step_with_arguments_goes_on_after_a_seed(executor: str) -> None:
    def run(decorate: Any) -> list[Any]:
        total = tf.Variable([0.0, 0.0])

        def step(x: Any, place: Any) -> Any:
            return total.assign_add(x * tf.random.normal([2])) + tf.gather(x, place)

        function = decorate(step)
        drawn = []
        for _ in range(2):
            tf.random.set_seed(1)
            drawn += [function(tf.constant([1.0, 2.0]), tf.constant(1)).numpy().tolist() for _ in range(4)]
        return drawn

    assert run(fastsup.function(executor=executor, fallback="raise")) == run(tf.function)


def test_a_step_loop_draws_the_new_sequence() -> None:
    def run(decorate: Any) -> list[list[float]]:
        tf.random.set_seed(1)
        total = tf.Variable([0.0, 0.0])
        step = decorate(lambda: total.assign_add(tf.random.normal([2])))
        totals = []
        for _ in range(2):
            tf.random.set_seed(3)
            StepLoop(step, max_steps=6).run()
            totals.append(total.numpy().tolist())
        return totals

    assert run(fastsup.function(fallback="raise")) == run(tf.function)


def test_sessions_of_old_sequences_go() -> None:
    tf.random.set_seed(1)
    lifted: Any = fastsup.function(noise, executor="inline", fallback="raise")
    lifted()
    (entry,) = lifted._entries.values()
    old = weakref.ref(next(iter(entry.step.graph._sessions.values())).session)
    for seed in range(5):
        tf.random.set_seed(seed)
        lifted()
    del entry
    gc.collect()
    assert old() is None


def test_functions_without_such_operations_keep_their_sessions() -> None:
    generator = tf.random.Generator.from_seed(1)
    lifted: Any = fastsup.function(
        lambda: generator.normal([2]) + tf.random.stateless_normal([2], [1, 2]), executor="inline", fallback="raise"
    )
    lifted()
    (entry,) = lifted._entries.values()
    sessions = entry.step.graph._sessions
    tf.random.set_seed(7)
    lifted()
    assert entry.step.graph._sessions is sessions


def test_threads_that_draw_while_a_seed_is_set() -> None:
    tf.random.set_seed(1)
    lifted: Any = fastsup.function(noise, fallback="raise")
    lifted()
    ended = threading.Event()
    drawn: list[int] = []

    def work() -> None:
        while not ended.is_set():
            drawn.append(lifted().shape[0])

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for seed in range(20):
            tf.random.set_seed(seed)
            lifted()
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert set(drawn) == {2}
