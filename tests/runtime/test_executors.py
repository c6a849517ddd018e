"""Whichever executor runs a step, and while one is being chosen: the results are those of TensorFlow's Session."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import fastsup

tf1 = tf.compat.v1

V1 = os.environ.get("FASTSUP_TEST_WORLD") == "v1"
# TensorFlow's single-threaded executor refuses reference variables and low-level control flow.
EXECUTORS = ["auto", "thread_pool", "inline"] + ([] if V1 else ["single_threaded"])

# A graph's builder returns what to run at step i: fetches and feeds.
Step = Callable[[int], tuple[Any, Any]]


def training() -> Step:
    random = np.random.RandomState(37)
    inputs, targets = random.rand(20, 8, 3).astype("f"), random.rand(20, 8, 1).astype("f")
    x, y = tf1.placeholder(tf.float32, [None, 3]), tf1.placeholder(tf.float32, [None, 1])
    weights = tf1.get_variable("weights", [3, 1], initializer=tf1.ones_initializer())
    loss = tf.reduce_mean((x @ weights - y) ** 2)
    step = tf1.train.get_or_create_global_step()
    train = tf1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, global_step=step)
    fetches = [{"loss": loss, "train": train}, [train], [weights, step], train]
    return lambda i: (fetches[i % 4], {x: inputs[i % 20], y: targets[i % 20]})


def loop() -> Step:
    x = tf1.placeholder(tf.int32, [])
    y = tf1.while_loop(lambda i, total: i < 10, lambda i, total: [i + 1, total + i * x], [0, 0])
    return lambda i: (y, {x: i})


def branches() -> Step:
    x = tf1.placeholder(tf.int32, [])
    y = tf1.cond(x % 3 < 1, lambda: x * 10, lambda: tf1.cond(x % 3 < 2, lambda: -x, lambda: x + 1000))
    return lambda i: ([y], {x: i})


def function() -> Step:
    @tf.function
    def collatz(n: tf.Tensor) -> tf.Tensor:
        steps = 0
        while n > 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
        return steps

    x = tf1.placeholder(tf.int32, [])
    y = collatz(x)
    return lambda i: ({"y": y}, {x: i % 30 + 1})


def queues() -> Step:
    x = tf1.placeholder(tf.float32, [2])
    queue = tf1.FIFOQueue(20, [tf.float32], [[2]])
    fetches = [queue.enqueue(x), queue.enqueue(x * 2.0), queue.dequeue(), {"taken": queue.dequeue()}, queue.size()]
    return lambda i: (fetches[i % 5], {x: [i, -i]})


def python_function() -> Step:
    calls: list[int] = []

    def call(x: Any) -> Any:
        calls.append(int(x))
        return np.int32(sum(calls))

    x = tf1.placeholder(tf.int32, [])
    y = tf1.py_func(call, [x], tf.int32)
    return lambda i: ((y, x), {x: i})


def dataset() -> Step:
    numbers = tf.data.Dataset.range(1000).map(lambda n: n * n).batch(3).prefetch(2)
    following = tf1.data.make_one_shot_iterator(numbers).get_next()
    return lambda i: (following if i % 2 else [following], None)


def random_numbers() -> Step:
    tf1.set_random_seed(37)
    numbers = tf.random.normal([3])
    mask = tf.nn.dropout(tf.ones([8]), rate=0.5)
    return lambda i: ([numbers, mask] if i % 3 else {"numbers": numbers}, None)


def texts() -> Step:
    x = tf1.placeholder(tf.string)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a0", "a1"], [10, 11]), -1)
    fetches = [table.lookup(tf.strings.join(["a", x])), table.size()]
    return lambda i: (fetches, {x: [str(i % 3), "b"]})


def summaries() -> Step:
    x = tf1.placeholder(tf.float32, [])
    tf1.summary.scalar("x", x)
    tf1.summary.histogram("h", tf.stack([x, x + 1.0]))
    merged = tf1.summary.merge_all()
    return lambda i: (merged, {x: i})


def arrays() -> Step:
    x = tf1.placeholder(tf.float32, [None])
    array = tf.TensorArray(tf.float32, size=0, dynamic_size=True, clear_after_read=False).unstack(x)
    y = array.write(array.size(), 7.0).stack()
    gradient = tf.gradients(tf.reduce_sum(y * y), x)
    return lambda i: ((y, gradient), {x: np.arange(i % 4 + 1, dtype=np.float32)})


GRAPHS = [
    training, loop, branches, function, queues, python_function, dataset, random_numbers, texts, summaries, arrays,
]  # fmt: skip
RUNS = 125  # More than it mostly takes to choose an executor.


@pytest.mark.slow
@pytest.mark.parametrize("executor", [*EXECUTORS, "auto, graph finished"])
@pytest.mark.parametrize("build", GRAPHS, ids=lambda build: build.__name__)
def test_same_results(both: Any, described: Any, build: Callable[[], Step], executor: str) -> None:
    executor, _, finished = executor.partition(", ")

    def outcomes(new_session: Any, **kwargs: Any) -> list[Any]:
        with tf.Graph().as_default() as graph:
            step = build()
            init = [tf1.global_variables_initializer(), tf1.local_variables_initializer(), tf1.tables_initializer()]
            if finished:
                graph.finalize()
            with new_session(**kwargs) as session:
                session.run(init)
                return [described(session.run(*step(i))) for i in range(RUNS)]

    expected = outcomes(both.tensorflow.Session)
    assert len({str(outcome) for outcome in expected}) > 2
    assert outcomes(both.fastsup.Session, executor=executor) == expected


@pytest.mark.parametrize("executor", EXECUTORS)
def test_forced_executor(both: Any, graph: tf.Graph, executor: str) -> None:
    tf.constant(1.5)
    with both.fastsup.Session(executor=executor) as session:
        assert session.executor == executor


def test_config_is_kept(both: Any, graph: tf.Graph) -> None:
    """The modes take nothing away from the program's own ConfigProto, and don't write into it."""
    y = tf.constant(1.5) * 2.0
    queue = tf1.FIFOQueue(1, tf.float32)
    taken = queue.dequeue()
    for executor in EXECUTORS:
        config = tf1.ConfigProto(operation_timeout_in_ms=15, allow_soft_placement=True, intra_op_parallelism_threads=1)
        before = config.SerializeToString(deterministic=True)
        with both.fastsup.Session(config=config, executor=executor) as session:
            assert session.run(y) == 3.0
            if executor != "single_threaded":
                with pytest.raises(tf.errors.DeadlineExceededError):
                    session.run(taken)
        assert config.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize("through", ["queue", "stage"])
@pytest.mark.parametrize("executor", ["auto", "thread_pool", "inline"])
def test_one_step_waits_for_another(both: Any, graph: tf.Graph, executor: str, through: str) -> None:
    """A step that blocks in the runtime stops neither other Python threads nor other steps."""
    x = tf1.placeholder(tf.int32, [])
    queue = tf1.FIFOQueue(1, tf.int32, [[]])
    area = tf.raw_ops.Stage(values=[x], capacity=1, shared_name="area")
    unstaged = tf.raw_ops.Unstage(dtypes=[tf.int32], capacity=1, shared_name="area")
    put = queue.enqueue(x) if through == "queue" else area
    take = queue.dequeue() if through == "queue" else unstaged[0]
    taken: list[int] = []
    with both.fastsup.Session(executor=executor) as session:
        consumer = threading.Thread(target=lambda: taken.extend(int(session.run(take)) for _ in range(300)))
        consumer.start()
        for i in range(300):
            session.run(put, {x: i})
        consumer.join()
    assert taken == list(range(300))


def test_parts_of_one_step_wait_for_each_other(impl: Any, graph: tf.Graph) -> None:
    """A step that takes from a queue what it puts there itself."""
    x = tf1.placeholder(tf.int32, [])
    queue = tf1.FIFOQueue(1, tf.int32, [[]])
    fetches = [queue.dequeue(), queue.enqueue(x)]
    with impl.Session() as session:
        for i in range(RUNS):
            assert session.run(fetches, {x: i}) == [i, None]


@pytest.mark.parametrize("again", [False, True])
def test_a_graph_that_the_executor_refuses(again: bool) -> None:
    """Says what to do, in a run that is the first of its kind and in later ones."""
    with tf.Graph().as_default():
        variable = tf1.get_variable("variable", initializer=1.0, use_resource=False)
        with fastsup.Session(executor="single_threaded") as session:
            for _ in range(1 + again):
                with pytest.raises(tf.errors.UnimplementedError) as raised:
                    session.run(variable.initializer)
    assert "does not support reference-typed edges" in raised.value.message
    assert raised.value.message.endswith('can\'t run this graph: executor="auto" chooses one that can.)')
