"""What a `fastsup.function` keeps alive, and what goes with it."""

from __future__ import annotations

import gc
import os
import tracemalloc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import fastsup
from fastsup.eager.lift import SlotVariable

pytestmark = pytest.mark.timeout(120)


def lift(function: Any, **options: Any) -> Any:
    return fastsup.function(function, fallback="raise", **options)


def live_boxes() -> int:
    gc.collect()
    return sum(isinstance(thing, SlotVariable) for thing in gc.get_objects())


def test_a_function_that_goes_takes_everything_with_it() -> None:
    before = live_boxes()
    constant = tf.ones([1000])

    def once() -> Any:
        v = tf.Variable(tf.zeros([1000]))
        ours = lift(lambda x: v.assign_add(x * constant))
        ours(tf.ones([1000]))
        step = next(iter(ours._entries.values())).step
        assert live_boxes() == before + 1
        return weakref.ref(step), weakref.ref(ours.original), weakref.ref(v)

    for reference in once():
        gc.collect()
        assert reference() is None
    assert live_boxes() == before


def test_an_iterator_goes_with_its_box() -> None:
    ours = lift(lambda iterator: next(iterator))
    iterator = iter(tf.data.Dataset.range(100).prefetch(2))
    ours(iterator)
    gone = weakref.ref(iterator)
    del iterator
    gc.collect()
    assert gone() is None
    assert int(ours(iter(tf.data.Dataset.range(5, 10).prefetch(2)))) == 5


def test_iterators_that_come_and_go() -> None:
    ours = lift(lambda iterator: next(iterator))

    def threads_after(count: int) -> int:
        for number in range(count):
            assert int(ours(iter(tf.data.Dataset.range(number, number + 5).prefetch(2)))) == number
        gc.collect()
        return len(os.listdir("/proc/self/task"))

    # Each iterator has threads. TensorFlow waits up to a minute when an old one goes while many live.
    before = threads_after(10)
    assert threads_after(60) < before + 20


def test_the_last_iterator_goes() -> None:
    ours = lift(lambda iterator: next(iterator))
    seen = weakref.WeakSet[Any]()

    class Batch:
        pass

    def numbers() -> Any:
        batch = Batch()
        seen.add(batch)
        yield 1
        yield id(batch)

    def first() -> int:
        data = tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec([], tf.int64))
        return int(ours(iter(data)))

    for _ in range(3):
        assert first() == 1
        gc.collect()
        assert not seen


def test_an_iterator_outlives_the_graph_that_asked_it_first() -> None:
    iterator = iter(tf.data.Dataset.range(30_000).map(lambda x: x + 1).batch(3).prefetch(2))
    lift(lambda iterator: next(iterator))(iterator)
    gc.collect()
    assert sum(int(batch[0]) for batch in iterator) == sum(range(4, 30_000, 3))


def test_a_box_that_goes_is_emptied() -> None:
    tensor = tf.ones([3])
    slot = SlotVariable(tensor, tensor.dtype, tensor.shape)
    with tf.device("/cpu:0"):
        same = slot._open()
    assert tf.raw_ops.VarIsInitializedOp(resource=same)
    del slot
    assert not tf.raw_ops.VarIsInitializedOp(resource=same)


def test_calls_leak_nothing() -> None:
    def bytes_grown(call: Callable[[], Any]) -> int:
        for _ in range(500):
            call()
        gc.collect()
        tracemalloc.start()
        for _ in range(3000):
            call()
        grown = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return grown

    v = tf.Variable(tf.zeros([10]))
    ours = lift(lambda x, scale: {"sum": tf.reduce_sum(v.assign_add(x * scale)), "x": [x, None]})
    x, array = tf.ones([10]), np.ones(10, np.float32)
    assert bytes_grown(lambda: ours(x, 2.0)) < 10 * 3000
    # TensorFlow 2.16 itself loses memory with each array that it converts.
    assert bytes_grown(lambda: ours(array, scale=2.0)) < bytes_grown(lambda: tf.constant(array)) + 10 * 3000


def test_the_graph_goes_with_its_function() -> None:
    """At once: as cycles, the graphs of many functions would wait for the collector."""

    def once() -> Any:
        v = tf.Variable(1.0)
        ours = lift(lambda x: v.assign_add(x) * 2.0)
        ours(tf.constant(1.0))
        return weakref.ref(next(iter(ours._entries.values())).step.graph.graph)

    once()
    gc.collect()
    gc.disable()
    try:
        assert once()() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("executor", ["auto", "single_threaded"])
def test_the_operation_of_an_error_outlives_its_function(executor: str) -> None:
    def failed(function: Any, argument: Any) -> Any:
        with pytest.raises(tf.errors.OpError) as caught:
            lift(function, executor=executor)(argument)
        return caught.value

    for error in (
        failed(lambda iterator: next(iterator), iter(tf.data.Dataset.range(0))),
        failed(lambda x: tf.debugging.check_numerics(tf.exp(x), "too large"), tf.constant(1000.0)),
    ):
        gc.collect()
        assert error.op is None or error.op.name in str(error)


@pytest.mark.parametrize("calls", [3, 2000])
def test_functions_made_again_of_the_same_code(calls: int) -> None:
    """A program that makes a function for a few calls, and then the next one, doesn't pay for lifting each."""

    def run() -> bool:
        v = tf.Variable(0.0)
        ours = fastsup.function(lambda x: v.assign_add(x), fallback="silent")
        one = tf.ones([])
        results = [float(ours(one)) for _ in range(calls)]
        assert results == [float(count) for count in range(1, calls + 1)]
        assert ours.lifted or "its calls haven't yet taken as long" in ours.why_not_lifted
        return bool(ours.lifted)

    lifted = [run() for _ in range(8)]
    assert lifted == ([True] * 8 if calls == 2000 else [True] * 4 + [False] * 4)


def test_a_function_that_must_be_lifted_need_not_earn_it() -> None:
    def run() -> bool:
        ours = lift(lambda x: x + 1)
        ours(tf.ones([]))
        return bool(ours.lifted)

    assert all(run() for _ in range(8))
