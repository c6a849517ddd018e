"""The buffer that runs get for metadata which nobody wants: emptied after each, and never shared by two at once."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from fastsup.runtime.callables import passes_buffers
from processes import Processes

import fastsup

tf1 = tf.compat.v1
EXECUTORS = ("thread_pool", "inline", "single_threaded")


def session_that_fills_it(executor: str) -> fastsup.Session:
    """A session whose runs have metadata: the session's own name."""
    # A run within a run takes another thread of the pool, which on a small machine has few.
    config = tf1.ConfigProto(inter_op_parallelism_threads=16, use_per_session_threads=True)
    config.experimental.session_metadata.name = f"named {executor} {id(config)}"
    return fastsup.Session(config=config, executor=executor)


def test_passed_with_this_tensorflow() -> None:
    assert passes_buffers()


@pytest.mark.parametrize("executor", EXECUTORS)
def test_emptied_after_each_run(executor: str, graph: tf.Graph) -> None:
    """The runtime refuses a buffer that isn't empty."""
    x = tf1.placeholder(tf.float32, [])
    doubled, constant = x * 2, tf.constant(3.0)
    with session_that_fills_it(executor) as session:
        for step in range(100):
            assert session.run(doubled, {x: step}) == 2 * step
            assert session.run(constant) == 3


@pytest.mark.parametrize("executor", EXECUTORS)
def test_usable_after_a_run_that_failed(executor: str, graph: tf.Graph) -> None:
    x = tf1.placeholder(tf.float32, [])
    checked = tf.debugging.check_numerics(x, "seen")
    with session_that_fills_it(executor) as session:
        for _ in range(5):
            with pytest.raises(tf.errors.InvalidArgumentError):
                session.run(checked, {x: np.nan})
            assert session.run(checked, {x: 1.0}) == 1


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("fed", [False, True])
def test_a_run_within_the_same_run(executor: str, fed: bool, graph: tf.Graph) -> None:
    depth = tf1.get_variable("depth", initializer=np.int64(0), use_resource=True)
    x = tf1.placeholder_with_default(np.float32(1), [])
    deepest = 4

    def descend(value: Any) -> Any:
        return value if session.run(deeper) >= deepest else session.run(fetch, feed_dict) + np.float32(1)

    deeper = depth.assign_add(1)
    fetch = tf1.py_func(descend, [x], tf.float32)
    feed_dict = {x: 10.0} if fed else None
    with session_that_fills_it(executor) as session:
        session.run(tf1.global_variables_initializer())
        assert session.run(fetch, feed_dict) == (10 if fed else 1) + deepest - 1
        session.run(depth.initializer)
        assert session.run(fetch, feed_dict) == (10 if fed else 1) + deepest - 1


@pytest.mark.parametrize("executor", EXECUTORS)
def test_threads_in_the_same_run(executor: str, graph: tf.Graph) -> None:
    """Both are in the run at once: neither goes on before the other has come."""
    meeting = threading.Barrier(2)
    x = tf1.placeholder(tf.float32, [])

    def meet(value: Any) -> Any:
        meeting.wait(30)
        return value

    fetch = tf1.py_func(meet, [x], tf.float32)
    results: dict[int, list[float]] = {}
    with session_that_fills_it(executor) as session:

        def work(number: int) -> None:
            results[number] = [float(session.run(fetch, {x: number})) for _ in range(50)]

        threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in (1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert results == {1: [1.0] * 50, 2: [2.0] * 50}


def test_memory_does_not_grow_with_sessions(processes: Processes) -> None:
    """In its own process. Each run leaves a megabyte in its buffer."""
    program = """
import gc, resource
import tensorflow as tf
import fastsup

config = tf.compat.v1.ConfigProto()
config.experimental.session_metadata.name = "m" * 1_000_000

def resident_megabytes():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6

def run(sessions):
    for _ in range(sessions):
        with fastsup.Session(config=config) as session:
            for _ in range(3):
                assert session.run(one) == 1 and session.run(two) == 2

with tf.Graph().as_default():
    one, two = tf.constant(1), tf.constant(2)
    tf.compat.v1.get_default_graph().finalize()
    run(20)
    before = resident_megabytes()
    run(150)
    grown = resident_megabytes() - before
# A buffer that is lost with its metadata is one megabyte: 300 for one of each session's fetches.
assert grown < 100, grown
"""
    processes.python("-c", program, check=True)


def test_a_version_that_was_not_tried(processes: Processes) -> None:
    program = """
import tensorflow as tf
from tensorflow.python.framework import versions
versions.__version__ = "9.9.0"
import fastsup
from fastsup.runtime.callables import passes_buffers
with tf.Graph().as_default():
    one = tf.constant(1)
    with fastsup.Session() as session:
        print(passes_buffers(), [int(session.run(one)) for _ in range(3)])
"""
    assert processes.python("-c", program, check=True).stdout == "False [1, 1, 1]\n"
