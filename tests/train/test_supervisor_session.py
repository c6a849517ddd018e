"""What a Supervisor's session goes through: how it ends, what is stopped, what is raised, and how it goes on."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import fastsup
from fastsup import train

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


def test_prepared_and_stopped(impl: Any, value: Any, tmp_path: Any) -> None:
    sv = impl.train.Supervisor(logdir=str(tmp_path))
    session = sv.prepare_or_wait_for_session("")
    for _ in range(10):
        assert session.run(value) == 1.0
    session.close()
    sv.stop()
    assert sv.should_stop()


def test_managed(impl: Any, value: Any, tmp_path: Any) -> None:
    sv = impl.train.Supervisor(logdir=str(tmp_path))
    with sv.managed_session("") as session:
        assert isinstance(session, impl.Session)
        assert session.run(value) == 1.0
        assert not sv.should_stop()
    assert sv.should_stop()
    with pytest.raises(RuntimeError, match=r"^Attempted to use a closed Session\.$"):
        session.run(value)


def test_classic_loop(graph: Any, counting_step: Any, tmp_path: Any) -> None:
    """Its steps run through one plan, and each is counted."""
    step = counting_step()
    sv = train.Supervisor(logdir=str(tmp_path))
    with sv.managed_session() as session:
        assert type(session) is fastsup.Session
        steps = 0
        while not sv.should_stop():
            session.run(step.op)
            steps += 1
            if steps == 1_000:
                sv.request_stop()
        assert session.run(step.read) == 1_000
        assert session.plan_cache_info().hits >= 999


def test_config(impl: Any, graph: Any) -> None:
    with tf.device("/cpu:1"):
        value = tf.constant([1.0])
    sv = impl.train.Supervisor()
    with sv.managed_session(config=v1.ConfigProto(device_count={"CPU": 2})) as session:
        assert session.run(value) == [1.0]
        assert len(session.list_devices()) == 2


# How it ends.


def test_error_in_the_block(impl: Any, value: Any, tmp_path: Any, tf_log: Any) -> None:
    sv = impl.train.Supervisor(logdir=str(tmp_path))
    error, reached = RuntimeError("failing here"), []
    with pytest.raises(RuntimeError) as raised:
        with sv.managed_session() as session:
            for number in range(10):
                reached.append(number)
                if number == 1:
                    raise error
                session.run(value)
    assert raised.value is error
    assert reached == [0, 1]
    assert sv.should_stop()
    assert session._closed
    assert f"Error reported to Coordinator: {RuntimeError}, failing here" in tf_log.messages


def test_end_of_the_input_in_the_block(impl: Any, value: Any, tmp_path: Any) -> None:
    sv = impl.train.Supervisor(logdir=str(tmp_path))
    with sv.managed_session() as session:
        raise tf.errors.OutOfRangeError(None, None, "all done")
    assert sv.should_stop()
    assert session._closed


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_interrupted(impl: Any, value: Any, tmp_path: Any, events: Any, error: type[BaseException]) -> None:
    sv = impl.train.Supervisor(logdir=str(tmp_path))
    with pytest.raises(error):
        with sv.managed_session() as session:
            raise error
    assert sv.should_stop()
    assert session._closed
    assert events(tmp_path)[-1] == "0:STOP"


def test_error_of_the_runtime(impl: Any, graph: Any) -> None:
    divided = tf.constant(1) // v1.placeholder_with_default(0, [])
    sv = impl.train.Supervisor()
    with pytest.raises(tf.errors.InvalidArgumentError, match="by zero"):
        with sv.managed_session() as session:
            session.run(divided)


def test_stopped_in_the_block(impl: Any, value: Any, tmp_path: Any, events: Any) -> None:
    sv = impl.train.Supervisor(logdir=str(tmp_path))
    with sv.managed_session(close_summary_writer=False) as session:
        sv.stop()
        assert sv.should_stop()
        # It stops the threads, not the session.
        assert session.run(value) == 1.0
    assert events(tmp_path)[-1] == "0:STOP"


def test_stopped_twice(value: Any, tmp_path: Any, events: Any) -> None:
    """Without a complaint (TensorFlow warns of the closed writer), and with one STOP."""
    sv = train.Supervisor(logdir=str(tmp_path))
    with sv.managed_session():
        sv.stop()
    sv.stop()
    assert [text for text in events(tmp_path) if text.endswith("STOP")] == ["0:STOP"]


def test_error_after_the_stop(impl: Any, value: Any) -> None:
    sv = impl.train.Supervisor()
    with pytest.raises(KeyError, match="mine"):
        with sv.managed_session() as session:
            sv.stop()
            raise KeyError("mine")
    assert session._closed


def test_error_while_preparing(impl: Any, graph: Any, tmp_path: Any, events: Any) -> None:
    v1.get_variable("w", initializer=1.0)

    def init_fn(session: Any) -> None:
        raise KeyError("no such part")

    sv = impl.train.Supervisor(logdir=str(tmp_path), init_fn=init_fn)
    with pytest.raises(KeyError, match="no such part"):
        with sv.managed_session():
            pytest.fail("There is no session.")
    assert sv.should_stop()
    assert events(tmp_path) == ["0:STOP"]


def init_fn_out_of_range(session: Any) -> None:
    raise tf.errors.OutOfRangeError(None, None, "read less bytes than requested")


def test_damaged_file_while_preparing(graph: Any) -> None:
    """It's the error that a checkpoint of half its length raises, and not the end of any input."""
    v1.get_variable("w", initializer=1.0)
    sv = train.Supervisor(init_fn=init_fn_out_of_range)
    with pytest.raises(tf.errors.OutOfRangeError, match="read less bytes"):
        with sv.managed_session():
            pytest.fail("There is no session.")
    assert sv.should_stop()


def test_damaged_file_while_preparing_in_tensorflow(both: Any, graph: Any) -> None:
    v1.get_variable("w", initializer=1.0)
    sv = both.tensorflow.train.Supervisor(init_fn=init_fn_out_of_range)
    with pytest.raises(RuntimeError, match="generator didn't yield"):
        with sv.managed_session():
            pytest.fail("There is no session.")


def test_session_that_could_not_be_served(
    graph: Any, counting_step: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error after the session was made: it's closed, its threads end, and another one can be made."""
    counting_step()
    threads = set(threading.enumerate())
    sv = train.Supervisor(logdir=str(tmp_path), save_model_secs=0.01)
    made = []
    prepare = train.SessionManager.prepare_session
    monkeypatch.setattr(
        train.SessionManager,
        "prepare_session",
        lambda self, *args, **more: made.append(prepare(self, *args, **more)) or made[-1],
    )

    def no_queues(session: Any) -> Any:
        raise tf.errors.UnavailableError(None, None, "no queues")

    monkeypatch.setattr(sv, "start_queue_runners", no_queues)
    with pytest.raises(tf.errors.UnavailableError, match="no queues"):
        sv.prepare_or_wait_for_session()
    assert made[0]._closed
    assert set(threading.enumerate()) <= threads
    with pytest.raises(tf.errors.UnavailableError, match="no queues"):
        with sv.managed_session():
            pytest.fail("There is no session.")
    assert made[1]._closed
    monkeypatch.undo()
    with sv.managed_session() as session:
        assert not sv.should_stop()
        assert not session._closed


def test_writer_that_fails_to_close(graph: Any, tmp_path: Any, tf_log: Any) -> None:
    """It's said where it's the only error, and doesn't hide another."""
    tf.constant(1.0)

    class Failing(v1.summary.FileWriter):
        def close(self) -> None:
            super().close()
            raise OSError("no space left")

    def run(error: Exception | None) -> None:
        sv = train.Supervisor(graph, summary_writer=Failing(str(tmp_path)))
        with sv.managed_session():
            if error is not None:
                raise error

    with pytest.raises(OSError, match="no space left"):
        run(None)
    graph._unsafe_unfinalize()
    with pytest.raises(KeyError, match="mine"):
        run(KeyError("mine"))
    assert "The summary writer could not be closed: no space left" in tf_log.messages


# Threads beside the loop.


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
        sv.loop(10, end)
        sv.wait_for_stop()


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
        thread = sv.loop(timer_interval_secs=0.2, target=lambda: calls.append(time.monotonic()))
        end = time.monotonic() + 30
        while len(calls) < 3:
            assert time.monotonic() < end
            time.sleep(0.01)
    assert not thread.is_alive()
    # From the beginning to the third call are two intervals, give or take what a busy machine gives and takes.
    assert calls[2] - calls[0] > 0.2


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


# One session after the other.


@pytest.mark.parametrize("is_chief", [True, False])
def test_again_after_the_stop(impl: Any, value: Any, tmp_path: Any, is_chief: bool) -> None:
    sv = impl.train.Supervisor(logdir=str(tmp_path), is_chief=is_chief)
    for _ in range(3):
        session = sv.prepare_or_wait_for_session()
        assert not sv.should_stop()
        assert session.run(value) == 1.0
        sv.stop()
        session.close()
        assert sv.should_stop()


# Seconds until the next events file gets another name than the last one.
ANOTHER_FILE = 1.1


def summary() -> Any:
    v1.summary.scalar("c", tf.constant(2.0))
    return v1.summary.merge_all()


def test_writer_that_is_closed_in_between(impl: Any, graph: Any, tmp_path: Any, events: Any) -> None:
    """Every events file is complete in itself."""
    computed = summary()
    sv = impl.train.Supervisor(logdir=str(tmp_path), summary_op=None)
    for _ in range(2):
        with sv.managed_session(start_standard_services=False, close_summary_writer=True) as session:
            sv.summary_computed(session, session.run(computed))
        time.sleep(ANOTHER_FILE)
    assert events(tmp_path) == ["0:graph_def", "0:meta_graph_def", "0:c", "0:STOP"] * 2


def test_writer_that_is_kept(impl: Any, graph: Any, tmp_path: Any, events: Any) -> None:
    computed = summary()
    sv = impl.train.Supervisor(logdir=str(tmp_path), summary_op=None)
    for _ in range(2):
        with sv.managed_session(start_standard_services=False, close_summary_writer=False) as session:
            sv.summary_computed(session, session.run(computed))
    sv.summary_writer.close()
    assert events(tmp_path) == ["0:graph_def", "0:meta_graph_def", "0:c", "0:c"]


def test_restart(impl: Any, tmp_path: Any, counting_step: Any, events: Any) -> None:
    """The next program goes on where the last checkpoint was, and doesn't initialise."""
    initialised: list[Any] = []

    def program(steps: int) -> list[int]:
        with tf.Graph().as_default():
            step = counting_step()
            sv = impl.train.Supervisor(logdir=str(tmp_path), init_fn=initialised.append, save_model_secs=0,
                                       save_summaries_secs=0)  # fmt: skip
            with sv.managed_session() as session:
                first = int(session.run(step.read))
                for _ in range(steps):
                    session.run(step.op)
                sv.saver.save(session, sv.save_path, global_step=sv.global_step)
                return [first, int(session.run(step.read))]

    assert program(3) == [0, 3]
    time.sleep(ANOTHER_FILE)
    assert program(4) == [3, 7]
    time.sleep(ANOTHER_FILE)
    assert program(1) == [7, 8]
    assert len(initialised) == 1
    assert [text for text in events(tmp_path) if "START" in text] == ["0:START", "3:START", "7:START"]


def test_restart_after_an_error(impl: Any, tmp_path: Any, counting_step: Any) -> None:
    """As the reference says: retried from the checkpoint when a worker was preempted."""

    def train_once(fail_at: int) -> int:
        with tf.Graph().as_default():
            step = counting_step()
            sv = impl.train.Supervisor(logdir=str(tmp_path), save_model_secs=0, save_summaries_secs=0)
            with sv.managed_session() as session:
                while (at := int(session.run(step.read))) < 10:
                    session.run(step.op)
                    if at + 1 == fail_at:
                        sv.saver.save(session, sv.save_path, global_step=sv.global_step)
                        raise tf.errors.AbortedError(None, None, "preempted")
                return at
        pytest.fail("It ends with a step, or with an error.")

    tries = iter([2, 6, 0])
    failures = 0
    while True:
        try:
            assert train_once(next(tries)) == 10
            break
        except tf.errors.AbortedError:
            failures += 1
    assert failures == 2


def test_other_graph_definition(impl: Any, tmp_path: Any) -> None:
    """A saver that came with an imported graph knows the operations by their names."""
    with tf.Graph().as_default():
        v1.get_variable("v0", initializer=1, use_resource=False)
        sv = impl.train.Supervisor(logdir=str(tmp_path))
        with sv.managed_session(start_standard_services=False) as session:
            path = sv.saver.save(session, sv.save_path)
    with tf.Graph().as_default():
        saver = v1.train.import_meta_graph(path + ".meta")
        sv = impl.train.Supervisor(logdir=str(tmp_path), saver=saver)
        with sv.managed_session(start_standard_services=False) as session:
            assert session.run("v0:0") == 1
            sv.saver.save(session, sv.save_path)


def test_summary_computed(impl: Any, graph: Any, counting_step: Any, tmp_path: Any, raw_events: Any) -> None:
    step = counting_step()
    computed = summary()
    sv = impl.train.Supervisor(logdir=str(tmp_path), summary_op=None)
    as_text = v1.Summary(value=[v1.Summary.Value(tag="d", simple_value=1.0)])
    with sv.managed_session(start_standard_services=False) as session:
        session.run(step.op)
        sv.summary_computed(session, session.run(computed))
        sv.summary_computed(session, as_text)
        sv.summary_computed(session, as_text.SerializeToString(), global_step=7)
        with pytest.raises((TypeError, AttributeError)) as raised:
            sv.summary_computed(session, 5)
    assert "int" in str(raised.value)
    found = [(event.step, event.summary.value[0].tag) for event in raw_events(tmp_path) if event.HasField("summary")]
    assert found == [(1, "c"), (1, "d"), (7, "d")]


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


def test_directory_as_a_path_object(graph: Any, tmp_path: Any) -> None:
    """TensorFlow's fails as it writes the graph."""
    train.get_or_create_global_step()
    sv = train.Supervisor(logdir=tmp_path / "new")
    with sv.managed_session():
        pass
    assert sv.save_path == str(tmp_path / "new" / "model.ckpt")
    assert {"graph.pbtxt", "model.ckpt-0.index"} <= set(os.listdir(tmp_path / "new"))
