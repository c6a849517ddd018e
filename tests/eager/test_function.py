"""`fastsup.function`: what it is given, when it is TensorFlow's own call, retracing, errors, threads."""

from __future__ import annotations

import gc
import logging
import os
import re
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

import fastsup
from fastsup.eager.function import Function

pytestmark = pytest.mark.timeout(120)


def lift(function: Any, **options: Any) -> Any:
    return fastsup.function(function, fallback="raise", **options)


@pytest.fixture(params=["tensorflow", "fastsup"])
def decorate(request: pytest.FixtureRequest) -> Any:
    """`tf.function` and `fastsup.function`, for bodies that must do the same with both."""
    return tf.function if request.param == "tensorflow" else lift


# What it is given.


def test_decorators() -> None:
    @fastsup.function
    def plain(x: Any) -> Any:
        """Its text."""
        return x + 1.0

    @fastsup.function(executor="inline", input_signature=[tf.TensorSpec([None], tf.float32)])
    def with_options(x: Any) -> Any:
        return x + 2.0

    assert plain(1.0).numpy() == 2.0
    assert plain.__name__ == "plain"
    assert plain.__doc__ == "Its text."
    assert plain.python_function(1.0) == 2.0
    assert with_options(tf.ones([3])).numpy().tolist() == [3.0] * 3
    assert with_options(tf.ones([4])).shape == [4]
    assert with_options.executor == "inline"
    assert with_options.original.experimental_get_tracing_count() == 1
    with pytest.raises(TypeError):
        with_options(tf.ones([2, 2]))


def test_arguments_of_tf_function() -> None:
    @fastsup.function(fallback="raise", autograph=False, reduce_retracing=True, jit_compile=False)
    def doubled(x: Any) -> Any:
        return x * 2.0

    for size in (1, 2, 3, 4):
        assert doubled(tf.ones([size])).numpy().tolist() == [2.0] * size
    assert doubled.lifted
    # One for each of the first two sizes, and one for any size.
    assert doubled.original.experimental_get_tracing_count() == 2
    assert repr(doubled).startswith("<fastsup.function doubled of <")


def test_an_existing_function_and_a_concrete_one() -> None:
    original = tf.function(lambda x, y: x - y)
    ours = lift(original)
    assert ours.original is original
    assert ours(tf.constant(3.0), tf.constant(1.0)).numpy() == 2.0
    assert original.experimental_get_tracing_count() == 1
    concrete = original.get_concrete_function(tf.TensorSpec([None]), tf.TensorSpec([]))
    lifted = lift(concrete)
    for size in (1, 4):
        assert lifted(tf.ones([size]), tf.constant(1.0)).numpy().tolist() == [0.0] * size
    assert lifted.lifted
    assert lifted.get_concrete_function() is concrete
    assert lifted(x=tf.ones([2]), y=tf.constant(0.0)).shape == [2]
    with pytest.raises(TypeError):
        lifted(tf.ones([2]))
    assert fastsup.function(ours).original is original


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"func": 3}, TypeError, "3 is not a callable object"),
        ({"func": len, "executor": "fast"}, ValueError, "executor must be one of"),
        ({"func": len, "executor": 1}, TypeError, "executor must be a string"),
        (
            {"func": len, "fallback": "ignore"},
            ValueError,
            "fallback must be one of 'warn', 'raise', 'silent'; got",
        ),
        ({"func": tf.function(len), "input_signature": []}, ValueError, "input_signature must be None for"),
        ({"func": tf.function(len), "jit_compile": True}, ValueError, "jit_compile must be None for"),
        ({"func": len, "compiled": True}, TypeError, "unexpected keyword argument 'compiled'"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as raised:
        fastsup.function(**arguments)
    assert text in str(raised.value)


class Model(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weights = tf.Variable(1.0)

    @fastsup.function(fallback="raise")
    def step(self, x: Any) -> Any:
        return self.weights.assign_add(x)


def test_methods() -> None:
    one, other = Model(), Model()
    for _ in range(3):
        one.step(1.0)
    assert other.step(5.0).numpy() == 6.0
    assert one.weights.numpy() == 4.0
    assert one.step is one.step
    assert one.step.lifted
    assert isinstance(Model.step, Function)
    gone = weakref.ref(one)
    del one
    gc.collect()
    assert gone() is None


# When it is TensorFlow's own call.


def test_gradients_through_a_lifted_function() -> None:
    v = tf.Variable([1.0, 2.0])
    ours, theirs = lift(lambda x: tf.reduce_sum(v * x * x)), tf.function(lambda x: tf.reduce_sum(v * x * x))
    x = tf.constant([3.0, 4.0])
    assert ours(x).numpy() == theirs(x).numpy()
    for function in (ours, theirs):
        with tf.GradientTape(persistent=True) as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = function(x)
            first = inner.gradient(y, x)
        assert first.numpy().tolist() == [6.0, 16.0]
        assert outer.gradient(first, x).numpy().tolist() == [2.0, 4.0]
        with tf.GradientTape() as tape:
            y = function(x)
        assert tape.gradient(y, v).numpy().tolist() == [9.0, 16.0]
        with tf.autodiff.ForwardAccumulator(x, tf.ones([2])) as accumulator:
            y = function(x)
        assert accumulator.jvp(y).numpy() == 22.0
    assert ours.lifted


def test_where_it_is_tensorflows_call() -> None:
    seen: list[Any] = []

    def step(x: Any) -> Any:
        seen.append(tf.executing_eagerly())
        return x * 2.0

    ours = lift(step)
    x = tf.ones([2])
    assert ours(x).numpy().tolist() == [2.0, 2.0]
    outer = tf.function(lambda x: ours(x) + 1.0)
    assert outer(x).numpy().tolist() == [3.0, 3.0]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        assert session.run(ours(tf.ones([2]))).tolist() == [2.0, 2.0]
    tf.config.run_functions_eagerly(True)
    try:
        ours(x)
    finally:
        tf.config.run_functions_eagerly(False)
    assert seen[-1]
    with tf.device("CPU:0"):
        assert ours(x).numpy().tolist() == [2.0, 2.0]
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        assert ours(x).numpy().tolist() == [2.0, 2.0]
    assert strategy.run(ours, (x,)).numpy().tolist() == [2.0, 2.0]
    assert ours.lifted


def test_asynchronous_execution() -> None:
    v = tf.Variable(0.0)
    ours = lift(lambda: v.assign_add(1.0))
    ours()
    with context.execution_mode(context.ASYNC):
        v.assign_add(1.0)
        ours()
    assert v.numpy() == 3.0


def test_python_runs_no_more_often_than_with_tensorflow(decorate: Any) -> None:
    traces: list[Any] = []
    made: list[Any] = []

    def step(x: Any, n: int = 1) -> Any:
        traces.append((x.shape.rank, n))
        if not made:
            made.append(tf.Variable(0.0))
        return made[0].assign_add(tf.reduce_sum(x) * n)

    function = decorate(step)
    for _ in range(3):
        function(tf.ones([2]))
        function(tf.ones([2, 2]))
        function(tf.ones([2]), n=2)
        function(tf.ones([2]), 2)
        function(np.ones([2], np.float32))
    assert traces == [(1, 1), (1, 1), (2, 1), (1, 2)]


def test_variables_may_not_be_created_later(decorate: Any) -> None:
    kept: list[Any] = []

    def step(x: Any) -> Any:
        kept.append(tf.Variable(x))
        return kept[-1]

    function = decorate(step)
    with pytest.raises(ValueError, match="only supports singleton"):
        function(1.0)


def test_the_python_function_may_fail(decorate: Any) -> None:
    def step(x: Any) -> Any:
        raise KeyError("inside")

    function = decorate(step)
    for _ in range(2):
        with pytest.raises(KeyError, match="inside"):
            function(1.0)


def test_a_first_trace_that_fails_after_it_made_a_variable(tf_log: Any) -> None:
    def make() -> Any:
        made: list[Any] = []

        def step(x: Any) -> Any:
            made.append(tf.Variable(1.0))
            if len(made) == 1:
                raise KeyError("inside")
            return made[0] * x

        return step

    def outcome(function: Any) -> Any:
        try:
            return function(1.0)
        except Exception as error:
            return type(error), str(error).splitlines()[:1]

    theirs, ours = tf.function(make()), fastsup.function(make())
    # TensorFlow can't trace such a function again: 2.21 returns None.
    assert [outcome(ours) for _ in range(3)] == [outcome(theirs) for _ in range(3)]
    reason = "its first trace failed after creating a variable"
    assert not ours.lifted
    assert reason in ours.why_not_lifted
    assert [reason in message for message in tf_log.messages] == [True]
    strict = lift(make())
    with pytest.raises(KeyError, match="inside"):
        strict(1.0)
    with pytest.raises(RuntimeError, match=reason):
        strict(1.0)


@pytest.mark.parametrize("name", ["/CPU:0", "cpu", "/job:localhost/replica:0/task:0/device:CPU:0"])
def test_a_scope_of_the_one_device(name: str) -> None:
    # Otherwise a session that another test has made may forbid the device that isn't there.
    tf.config.set_soft_device_placement(True)
    weights = tf.Variable(tf.ones([3]))
    ours = lift(lambda x: x * weights, executor="inline")
    with tf.device(name):
        for _ in range(3):
            assert ours(tf.ones([3])).numpy().tolist() == [1.0] * 3
    assert ours.lifted
    assert ours.why_not_lifted == ""
    with tf.device("/GPU:3"):
        ours(tf.ones([3]))


def test_scopes_have_the_same_trace(decorate: Any) -> None:
    devices: list[str] = []

    def step(x: Any) -> Any:
        made = x + float(len(devices))
        devices.append(made.device)
        return made

    function = decorate(step)
    for scope in (None, "/CPU:0", None, "/cpu"):
        with tf.device(scope):
            assert float(function(tf.constant(0.0))) == 0.0
    assert devices == [""]


def test_fallback(tf_log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    values = [tf.constant(1.0)]

    def step() -> Any:
        graph = tf.compat.v1.get_default_graph()
        return graph.capture_call_time_value(lambda: values[0], tf.TensorSpec([])) * 2.0

    ours = fastsup.function(step)
    for value in (1.0, 5.0):
        values[0] = tf.constant(value)
        assert ours().numpy() == 2.0 * value
    assert not ours.lifted
    assert "recomputed" in ours.why_not_lifted
    assert [record.levelno for record in tf_log.records] == [logging.WARNING]
    assert tf_log.messages[0].startswith("step isn't lifted: it captures values that are recomputed")
    silent = fastsup.function(step, fallback="silent")
    assert silent().numpy() == 10.0
    assert len(tf_log.messages) == 1
    with pytest.raises(RuntimeError, match="step isn't lifted"):
        fastsup.function(step, fallback="raise")()


def test_why_not_says_where_a_function_was_called() -> None:
    variable = tf.Variable(1.0)
    function = fastsup.function(lambda: variable * 2.0, fallback="raise")
    assert function.why_not_lifted == ""
    with tf.GradientTape():
        assert function().numpy() == 2.0
    assert (function.lifted, function.why_not_lifted) == (False, "a gradient tape or a forward accumulator records")
    assert function().numpy() == 2.0
    assert (function.lifted, function.why_not_lifted) == (True, "")
    with tf.GradientTape():
        function()
    assert (function.lifted, function.why_not_lifted) == (True, "")


def test_other_attributes_are_those_of_the_function_in_it() -> None:
    function = fastsup.function(lambda x: x + 1.0, input_signature=[tf.TensorSpec([])])
    function(1.0)
    assert function.experimental_get_tracing_count() == 1
    assert function.input_signature == (tf.TensorSpec([]),)
    assert "float32" in function.pretty_printed_concrete_signatures()
    assert function.function_spec.fullargspec.args == ["x"]
    with pytest.raises(AttributeError, match="no_such_attribute"):
        function.no_such_attribute
    with pytest.raises(AttributeError, match="__no_such_name__"):
        function.__no_such_name__


def test_a_loop_over_a_dataset_that_calls_functions() -> None:
    total = tf.Variable(0, dtype=tf.int64)
    add = tf.function(lambda value: total.assign_add(value))

    def add_all(numbers: Any) -> Any:
        for number in numbers:
            add(number)
        return total.read_value()

    ours = lift(add_all)
    assert [int(ours(tf.data.Dataset.range(5))) for _ in range(2)] == [10, 20]
    assert ours.lifted


# Errors.


_NODE = re.compile(r"\{\{node ([^}]*)\}\}")


def error_of(function: Any, *args: Any) -> Exception:
    with pytest.raises(tf.errors.OpError) as raised:
        function(*args)
    return raised.value


_SINGLE = pytest.param(
    "single_threaded", marks=pytest.mark.one_device("the single-threaded executor runs steps of one device")
)


@pytest.mark.parametrize("executor", ["auto", "inline", _SINGLE])
def test_errors_are_those_of_tensorflow(executor: str) -> None:
    def asserts(x: Any) -> Any:
        tf.debugging.assert_less(x, 1.0, message="too large")
        return x

    def gathers(x: Any) -> Any:
        with tf.device("/cpu:0"):  # An accelerator's kernel gives zeros.
            return tf.gather(tf.ones([3]), x)

    cases: list[Any] = [
        (asserts, (tf.constant(2.0),), "too large"),
        (lambda x: tf.ones([x]) + tf.ones([3]), (tf.constant(4),), "Incompatible shapes"),
        (gathers, (tf.constant(5),), "indices = 5 is not in [0, 3)"),
        (lambda x: tf.io.read_file(x), (tf.constant("/no/such/file"),), "/no/such/file"),
        (lambda x: tf.debugging.check_numerics(x, "bad number"), (tf.constant(np.nan),), "bad number"),
        (lambda x: next(x), (iter(tf.data.Dataset.range(0)),), "End of sequence"),
        (lambda x: tf.linalg.inv(x), (tf.zeros([2, 2]),), "not invertible"),
    ]
    for function, args, text in cases:
        theirs = error_of(tf.function(function), *args)
        ours = lift(function, executor=executor)
        for _ in range(2):
            error = error_of(ours, *args)
            assert type(error) is type(theirs)
            assert text in str(error)
            assert text in str(theirs)
            # Of a conditional, the single-threaded executor's error names the whole.
            assert _NODE.findall(theirs.message)[0].startswith(_NODE.findall(error.message)[0])
        assert ours.lifted


def test_a_failed_call_leaves_the_function_usable() -> None:
    v = tf.Variable(0.0)

    def step(x: Any) -> Any:
        with tf.control_dependencies([tf.debugging.assert_less(x, 1.0)]):
            return v.assign_add(x)

    ours = lift(step)
    ours(0.5)
    for _ in range(5):
        with pytest.raises(tf.errors.InvalidArgumentError):
            ours(tf.constant(2.0))
        ours(tf.constant(0.5))
    assert v.numpy() == 3.0


def test_a_variable_that_only_the_graph_has(decorate: Any) -> None:
    holder = [tf.Variable(1.0)]
    function = decorate(lambda: holder[0].assign_add(1.0))
    function()
    holder[0] = tf.Variable(10.0)
    gc.collect()
    assert function().numpy() == 3.0


def test_deeply_nested_conditions_are_refused_in_the_single_threaded_executor() -> None:
    def nest(x: Any, depth: int) -> Any:
        return x + 1.0 if depth == 0 else tf.cond(x > -depth, lambda: nest(x * 2.0, depth - 1), lambda: x)

    # More than there are threads in the pool.
    depth = len(os.sched_getaffinity(0)) + 1
    step = tf.function(lambda x: nest(x, depth))
    with pytest.raises(tf.errors.UnimplementedError, match="its conditionals hold"):
        fastsup.function(step, executor="single_threaded")(tf.constant(1.0))
    assert float(fastsup.function(step)(tf.constant(1.0))) == float(step(tf.constant(1.0)))


# Executors.


def test_auto_takes_the_single_threaded_executor_for_a_small_step() -> None:
    v = tf.Variable(tf.zeros([10]))
    ours = lift(lambda x: v.assign_add(x))
    ours(tf.ones([10]))
    assert ours.executor == "single_threaded"


def test_auto_tries_executors_for_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastsup.runtime.trial._SAVED_SECS", 1e9)  # The trial begins at once.

    def step(x: Any) -> Any:
        for _ in tf.range(3):
            x = x * 1.5
        return x

    ours = lift(step)
    x = tf.ones([3])
    assert ours.seconds is None
    for _ in range(1000):
        ours(x)
    assert ours.executor in ("inline", "thread_pool")
    assert 0.0 < ours.seconds < 0.1


# Threads.


def test_threads_count_exactly(tmp_path: Path) -> None:
    """Lifted calls of two functions, eager reads, checkpoints: each in its own thread."""
    count, sums = tf.Variable(0, dtype=tf.int64), tf.Variable(tf.zeros([4], tf.float64))
    checkpoint = tf.train.Checkpoint(count=count, sums=sums)
    add = lift(lambda x: (count.assign_add(1), sums.assign_add(x, read_value=False))[0])
    add_more = lift(lambda by: count.assign_add(by["number"]))
    x, two = tf.ones([4], tf.float64), {"number": tf.constant(2, tf.int64)}
    add(x)
    saved: list[int] = []
    seen = [0]

    def read() -> None:
        seen.append(int(count.read_value()))
        assert seen[-1] >= seen[-2]

    def save() -> None:
        path = checkpoint.write(str(tmp_path / f"at-{len(saved)}"))
        saved.append(int(tf.train.load_variable(path, "count/.ATTRIBUTES/VARIABLE_VALUE")))

    works = [lambda: add(x), lambda: add(x), lambda: add_more(two), read, save]
    calls = [0] * len(works)
    errors: list[BaseException] = []
    end = time.monotonic() + (60.0 if os.environ.get("FASTSUP_HYPOTHESIS") == "long" else 3.0)

    def work(number: int) -> None:
        try:
            while calls[number] == 0 or time.monotonic() < end:
                works[number]()
                calls[number] += 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert min(calls) > 0
    assert count.numpy() == 1 + calls[0] + calls[1] + 2 * calls[2]
    assert sums.numpy().tolist() == [float(1 + calls[0] + calls[1])] * 4
    assert saved == sorted(saved)


def test_threads_that_trace(decorate: Any) -> None:
    """Each call has another object, and so another trace: threads look at the traces while others add some."""
    function = decorate(lambda thing: tf.constant(1.0))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(function, [Model() for _ in range(100)]))
    finally:
        sys.setswitchinterval(interval)
    assert [float(result) for result in results] == [1.0] * 100


def test_threads_with_iterators_of_their_own() -> None:
    ours = lift(lambda iterator: next(iterator))
    found: dict[int, list[int]] = {}

    def work(number: int) -> None:
        iterator = iter(tf.data.Dataset.range(number * 1000, number * 1000 + 200))
        found[number] = [int(ours(iterator)) for _ in range(200)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: list(range(number * 1000, number * 1000 + 200)) for number in range(4)}


@pytest.mark.slow
def test_threads_whose_iterators_come_and_go() -> None:
    """The slot of one that goes is emptied. It may hold another thread's by then, or get it at that moment."""
    ours = lift(lambda iterator: next(iterator))
    sums: list[int] = []

    def work() -> None:
        for _ in range(300):
            iterator = iter(tf.data.Dataset.range(4))
            sums.append(sum(int(ours(iterator)) for _ in range(4)))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == [6] * 6 * 300


def test_a_box_that_is_being_filled_is_filled_for_no_other_call() -> None:
    ours = lift(lambda iterator: next(iterator))
    first, second = (iter(tf.data.Dataset.range(4)) for _ in range(2))
    ours(first), ours(second)  # The slot now holds the second iterator.
    (entry,) = ours._entries.values()
    ((_, variable),) = entry.step.graph.opaque_inputs
    by_tensorflow: list[Any] = []
    original = ours.original
    ours.original = lambda iterator: by_tensorflow.append(iterator) or original(iterator)
    scope = context.context().device_name or None

    def call_on_the_same_device() -> None:
        with tf.device(scope):
            ours(first)

    with variable.slot.lock:
        waiting = threading.Thread(target=call_on_the_same_device)
        waiting.start()
        while entry.step.running == 0:
            time.sleep(0.001)
        assert int(ours(second)) == 1
    waiting.join()
    assert by_tensorflow == [second]
    assert [int(ours(first)), int(ours(second))] == [2, 2]


def test_a_step_may_call_lifted_functions_from_python() -> None:
    inner = lift(lambda x: x + 1.0)
    inner(tf.ones([]))
    outer = lift(lambda x: tf.py_function(lambda value: inner(value), [x], tf.float32))
    for _ in range(3):
        assert outer(tf.ones([])).numpy() == 2.0


def test_it_runs_in_a_step_loop() -> None:
    v = tf.Variable(0)
    ours = lift(lambda: v.assign_add(1))
    fastsup.core.StepLoop(ours, max_steps=20).run()
    assert v.numpy() == 20
