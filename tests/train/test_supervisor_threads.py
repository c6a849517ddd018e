"""The threads alongside a Supervisor's session: loops, queue runners, and that none of them is left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

v1 = tf.compat.v1


@pytest.fixture
def value(graph: Any) -> Any:
    return tf.constant(1.0)


def numbers(count: int, capacity: int = 4) -> Any:
    """The numbers from 0, one a run, out of a queue that a thread fills."""
    with tf.device("/cpu:0"):
        queue = v1.FIFOQueue(capacity, tf.int64, shapes=[[]])
        source = tf.data.Dataset.range(count)
        number = v1.data.make_initializable_iterator(source)
        v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, number.initializer)
        runner = v1.train.QueueRunner(queue, [queue.enqueue(number.get_next())])
        v1.train.add_queue_runner(runner)
        return queue.dequeue()


# Threads alongside the loop.


def test_error_in_a_thread(impl: Any, value: Any) -> None:
    """The loop is told to stop, and then what happened."""

    def fail() -> None:
        raise ValueError("in a thread")

    sv = impl.train.Supervisor()
    with pytest.raises(ValueError, match="in a thread"):
        with sv.managed_session() as session:
            sv.loop(10, fail)
            end = time.monotonic() + 60
            while not sv.should_stop():
                assert time.monotonic() < end
                session.run(value)


def test_end_of_the_input_in_a_thread(impl: Any, value: Any) -> None:
    def end() -> None:
        raise tf.errors.OutOfRangeError(None, None, "all done")

    sv = impl.train.Supervisor()
    with sv.managed_session():
        thread = sv.loop(10, end)
        sv.wait_for_stop()
    assert not thread.is_alive()


def test_error_in_a_thread_and_in_the_block(impl: Any, value: Any) -> None:
    """The first one is the cause."""

    def fail() -> None:
        raise ValueError("first")

    sv = impl.train.Supervisor()
    with pytest.raises(ValueError, match="first"):
        with sv.managed_session():
            sv.loop(10, fail)
            sv.wait_for_stop()
            raise KeyError("second")


@pytest.mark.parametrize("interval", [0.01, 0, None])
def test_loop(impl: Any, value: Any, interval: Any) -> None:
    calls, enough = [], threading.Event()

    def note(*args: Any, **kwargs: Any) -> None:
        calls.append((args, kwargs))
        if len(calls) == 5:
            enough.set()
        elif len(calls) > 5:
            time.sleep(0.001)

    sv = impl.train.Supervisor()
    with sv.managed_session():
        thread = sv.loop(interval, note, args=(1, 2), kwargs={"three": 3})
        assert isinstance(thread, v1.train.LooperThread)
        assert thread.daemon
        assert enough.wait(30)
        assert thread.is_alive()
    assert not thread.is_alive()
    assert calls[0] == ((1, 2), {"three": 3})


def test_loop_at_intervals(impl: Any, value: Any) -> None:
    """The first call comes at once, the next after the interval."""
    calls: list[float] = []
    sv = impl.train.Supervisor()
    with sv.managed_session():
        started = time.monotonic()
        thread = sv.loop(timer_interval_secs=0.2, target=lambda: calls.append(time.monotonic()))
        end = time.monotonic() + 30
        while len(calls) < 3:
            assert time.monotonic() < end
            time.sleep(0.01)
    assert not thread.is_alive()
    # From the beginning, not from the first call, which a busy machine may delay, to the third one are two intervals.
    assert calls[2] - started > 0.39


def test_loop_before_there_is_a_session(impl: Any, value: Any) -> None:
    called = threading.Event()
    sv = impl.train.Supervisor()
    sv.loop(10, called.set)
    assert called.wait(30)
    sv.stop()


def test_loop_after_the_stop(impl: Any, value: Any) -> None:
    calls: list[int] = []
    sv = impl.train.Supervisor()
    sv.stop()
    sv.loop(10, calls.append, (1,)).join(30)
    assert calls == []


def test_request_stop(impl: Any, value: Any) -> None:
    sv = impl.train.Supervisor()
    with pytest.raises(ValueError, match="the reason"):
        with sv.managed_session():
            try:
                raise ValueError("the reason")
            except ValueError as error:
                sv.request_stop(error)
            assert sv.should_stop()


def test_stop_on_exception(impl: Any, value: Any) -> None:
    sv = impl.train.Supervisor()
    with pytest.raises(ValueError, match="the reason"):
        with sv.managed_session():
            with sv.stop_on_exception():
                raise ValueError("the reason")
            assert sv.should_stop()
            assert sv.wait_for_stop() is None


def test_old_names(impl: Any, value: Any, tmp_path: Any) -> None:
    sv = impl.train.Supervisor(logdir=str(tmp_path), summary_op=None, save_model_secs=0, save_summaries_secs=0)
    session = sv.PrepareSession("", start_standard_services=False)
    assert sv.StartStandardServices(session) == []
    assert sv.StartQueueRunners(session) == []
    sv.SummaryComputed(session, v1.Summary(value=[v1.Summary.Value(tag="a", simple_value=1.0)]), 3)
    called = threading.Event()
    sv.Loop(10, called.set)
    assert called.wait(30)
    assert not sv.ShouldStop()
    with sv.StopOnException():
        raise tf.errors.OutOfRangeError(None, None, "")
    sv.WaitForStop()
    sv.RequestStop()
    sv.Stop()
    assert sv.ShouldStop()
    session.close()


# Queues.


@pytest.mark.parametrize("capacity", [1, 4, 100])
def test_input_that_ends(impl: Any, graph: Any, tmp_path: Any, capacity: int) -> None:
    number = numbers(9, capacity)
    sv = impl.train.Supervisor(logdir=str(tmp_path))
    seen = []
    with sv.managed_session() as session:
        while True:
            seen.append(int(session.run(number)))
    assert seen == list(range(9))


def test_input_through_two_queues(impl: Any, graph: Any, tmp_path: Any) -> None:
    batch = v1.train.shuffle_batch([numbers(9)], 1, 6, 4)
    sv = impl.train.Supervisor(logdir=str(tmp_path))
    seen = []
    with sv.managed_session() as session:
        while True:
            seen += session.run(batch).tolist()
    assert sorted(seen) == list(range(9))


def test_error_in_the_block_with_queues(impl: Any, graph: Any, tmp_path: Any) -> None:
    """Threads that wait in a full queue don't hold the end up."""
    batch = v1.train.shuffle_batch([numbers(1_000)], 1, 6, 4)
    sv = impl.train.Supervisor(logdir=str(tmp_path))
    started = time.monotonic()
    with pytest.raises(RuntimeError, match="fail at step 3"):
        with sv.managed_session() as session:
            for step in range(9):
                if step == 3:
                    raise RuntimeError("fail at step 3")
                session.run(batch)
    assert time.monotonic() - started < 60  # stop_grace_secs is 120.


def test_queue_runners(impl: Any, graph: Any) -> None:
    number = numbers(1_000)
    (collected,) = graph.get_collection(v1.GraphKeys.QUEUE_RUNNERS)
    sv = impl.train.Supervisor()
    session = sv.prepare_or_wait_for_session(start_standard_services=False)
    assert sv.start_queue_runners(session, []) == []
    assert sv.start_queue_runners(session, queue_runners=()) == []
    threads = sv.start_queue_runners(session)
    assert all(thread.daemon and thread.is_alive() for thread in threads)
    assert len(threads) == 2  # One that enqueues, and one that closes the queue.
    assert session.run(number) == 0
    sv.stop(threads)
    assert not any(thread.is_alive() for thread in threads)
    session.close()
    # Those that weren't collected.
    session = sv.prepare_or_wait_for_session(start_standard_services=False)
    assert len(sv.start_queue_runners(session, [collected])) == 2
    sv.stop()
    session.close()


def test_no_queue_runners(impl: Any, value: Any) -> None:
    sv = impl.train.Supervisor()
    with sv.managed_session() as session:
        assert sv.start_queue_runners(session) == []


@pytest.mark.parametrize("start", [True, False])
def test_services_that_are_not_wanted(
    impl: Any, graph: Any, counting_step: Any, tmp_path: Any, events: Any, start: bool
) -> None:
    numbers(3)
    counting_step()
    sv = impl.train.Supervisor(logdir=str(tmp_path), save_model_secs=0, save_summaries_secs=0)
    before = set(threading.enumerate())
    with sv.managed_session(start_standard_services=start):
        assert bool(set(threading.enumerate()) - before) is start
    assert ("0:START" in events(tmp_path)) is start


def lost(callback: Callable[[], Any]) -> set[threading.Thread]:
    before = set(threading.enumerate())
    callback()
    return set(threading.enumerate()) - before


def test_no_thread_is_left(impl: Any, graph: Any, counting_step: Any, tmp_path: Any) -> None:
    """After ten sessions of one supervisor, with every kind of thread."""
    counting_step()
    sv = impl.train.Supervisor(logdir=str(tmp_path), save_model_secs=0, save_summaries_secs=0)

    def run() -> None:
        for _ in range(10):
            with sv.managed_session():
                sv.loop(10, time.monotonic)

    assert lost(run) == set()
