"""One session, many threads: no run is lost, no result is torn or another thread's, and closing ends them cleanly."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

tf1 = tf.compat.v1

THREADS = 8


@pytest.fixture(params=["tensorflow", "fastsup", "fastsup-inline"])
def sessions(request: pytest.FixtureRequest, both: Any) -> Any:
    if request.param == "tensorflow":
        return both.tensorflow.Session
    return functools.partial(both.fastsup.Session, executor="inline" if "inline" in request.param else "auto")


def in_threads(work: Callable[[int], None], count: int = THREADS) -> list[BaseException]:
    """Runs work(number) in each of some threads that start together. Returns the exceptions that ended them."""
    raised: list[BaseException] = []
    start = threading.Barrier(count)

    def call(number: int) -> None:
        start.wait()
        try:
            work(number)
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=call, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    return raised


@pytest.mark.slow
def test_nothing_is_lost_or_torn(sessions: Any, graph: tf.Graph, request: pytest.FixtureRequest) -> None:
    """100,000 runs in all; a tenth of them where each costs what TensorFlow's own does."""
    runs = (10_000 if "tensorflow" in request.node.name else 100_000) // THREADS
    counter = tf1.get_variable("counter", initializer=np.int64(0), use_resource=True)
    # Its two halves are always equal, between steps as well as in what a step returns.
    pair = tf1.get_variable("pair", initializer=np.zeros([2], np.int64), use_resource=True)
    add, add_pair = counter.assign_add(1).op, pair.assign_add([1, 1], read_value=False)
    x = tf1.placeholder(tf.int64, [], name="x")
    computed = {"double": x * 2, "negative": [-x]}
    fetches = [add, [add], {"add": add}, (add, [add])]
    counted = [0] * THREADS

    with sessions() as session:
        session.run(tf1.global_variables_initializer())

        def work(number: int) -> None:
            last = 0
            for i in range(runs):
                kind = i % 8
                if kind < 4:
                    session.run(fetches[kind])
                    counted[number] += 1
                elif kind < 6:
                    fed = number * 1_000_000 + i
                    result = session.run(computed, {x: fed} if kind == 4 else {"x:0": np.array(fed)})
                    assert (result["double"], result["negative"]) == (2 * fed, [-fed])
                elif kind == 6:
                    session.run(add_pair)
                else:
                    now, (left, right) = session.run([counter, pair])
                    assert left == right
                    assert now >= last, "the counter went back"
                    last = now

        assert in_threads(work) == []
        assert session.run(counter) == sum(counted) == THREADS * (runs // 8 * 4 + min(runs % 8, 4))
        assert session.run(pair).tolist() == [THREADS * (runs // 8 + (runs % 8 > 6))] * 2


def test_plans_made_at_once(impl: Any, graph: tf.Graph) -> None:
    """All threads come with the same new fetches at the same time."""
    parts = [tf.constant(i) for i in range(60)]
    with impl.Session() as session:

        def work(number: int) -> None:
            for i in range(60):
                for _ in range(3):
                    assert session.run([parts[i], parts[-1]]) == [i, 59]
                    assert session.run(parts[(i + number) % 60]) == (i + number) % 60

        assert in_threads(work) == []
        if impl.name == "fastsup":
            assert session.plan_cache_info().currsize == 120


def test_plans_that_go_while_they_run(both: Any, graph: tf.Graph, room_for: Any, monkeypatch: Any) -> None:
    """More combinations than there is room for: what one thread runs, another throws out, in nearly every run."""
    monkeypatch.setattr("fastsup.runtime.plans.STALE_ROUNDS", 0)
    room_for(5)
    x = tf1.placeholder(tf.int32, [], name="x")
    parts = [x + i for i in range(12)]
    with both.fastsup.Session() as session:

        def work(number: int) -> None:
            for i in range(40):
                place = (i * (number + 1)) % 12
                assert session.run([parts[place]], {x: number}) == [number + place]
                assert session.run(parts[place], {"x:0": i}) == i + place

        assert in_threads(work) == []
        info = session.plan_cache_info()
        assert info.left > 0
        assert info.bytes <= info.max_bytes


def test_closed_while_others_run(sessions: Any, request: pytest.FixtureRequest) -> None:
    if "tensorflow" in request.node.name:
        pytest.skip("TensorFlow deletes the session under a run that is on the way into it, and the process may crash")
    closed_errors = (RuntimeError, tf.errors.CancelledError)
    for _ in range(8):
        with tf.Graph().as_default():
            v = tf1.get_variable("v", initializer=0, use_resource=True)
            x = tf1.placeholder(tf.int32, [], name="x")
            steps = [(v.assign_add(1), None), ([v], None), ({"y": v + x}, {x: 1})]
            session = sessions()
            session.run(v.initializer)
            ready = threading.Barrier(4)

            def work(number: int, session: Any = session, steps: Any = steps, ready: Any = ready) -> None:
                if number == 3:
                    ready.wait()
                    session.close()
                    return
                session.run(*steps[number])
                ready.wait()
                while True:
                    session.run(*steps[number])

            raised = in_threads(work, 4)
            assert len(raised) == 3
            assert [error for error in raised if not isinstance(error, closed_errors)] == []
            with pytest.raises(RuntimeError, match="Attempted to use a closed Session"):
                session.run(v)
            del session


def test_closing_wakes_those_who_wait(sessions: Any, graph: tf.Graph) -> None:
    queue = tf1.FIFOQueue(1, tf.float32, [[]])
    take, size = queue.dequeue(), queue.size()
    session = sessions()
    session.run(size)
    waiting = [threading.Event(), threading.Event()]

    def work(number: int) -> None:
        if number == 2:
            for event in waiting:
                event.wait()
            session.run(size)
            session.close()
            return
        waiting[number].set()
        session.run(take if number else [take])

    raised = in_threads(work, 3)
    assert len(raised) == 2
    assert {type(error) for error in raised} <= {tf.errors.CancelledError, RuntimeError}


def test_prevented_while_others_run(sessions: Any, graph: tf.Graph) -> None:
    """The plans are made again while threads use them."""
    x = tf1.placeholder(tf.int32, [], name="x")
    y = x * 3
    others = [tf.constant(i) for i in range(30)]
    with sessions() as session:

        def work(number: int) -> None:
            if number == 0:
                for other in others:
                    graph.prevent_fetching(other.op)
                    assert session.run(y, {x: 5}) == 15
                return
            for i in range(150):
                assert session.run([y], {x: i}) == [3 * i]

        assert in_threads(work, 4) == []
