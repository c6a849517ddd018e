"""The end of the program, with daemon threads inside TensorFlow's runtime."""

from __future__ import annotations

import os
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from processes import Processes

import fastsup
from fastsup.common import interpreter_end

v1 = tf.compat.v1

ENVIRONMENT = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}


@pytest.fixture
def calls() -> Any:
    return interpreter_end._CompletedBeforeExit()


def in_thread(body: Any) -> threading.Thread:
    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    return thread


def test_the_end_waits_for_calls_under_way(calls: Any) -> None:
    inside, leave, left = threading.Event(), threading.Event(), []

    def body() -> None:
        with calls, calls:
            inside.set()
            leave.wait(60)
            left.append(True)

    thread = in_thread(body)
    inside.wait(60)
    threading.Timer(0.05, leave.set).start()
    calls.end()
    assert left
    thread.join(60)
    assert not calls._depths


def two_calls(calls: Any, entered: list[int]) -> Callable[[], None]:
    """What a thread does: it makes a call within a call, and another one."""

    def body() -> None:
        with calls, calls:
            entered.append(1)
        with calls:
            entered.append(2)

    return body


def test_the_end_holds_back_other_threads(calls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter_end, "HOLD_SECS", 60)
    calls.end()
    entered: list[int] = []
    thread = in_thread(two_calls(calls, entered))
    thread.join(0.05)
    assert thread.is_alive()
    assert not entered
    calls._hold_ended.set()  # As if its time had passed.
    thread.join(60)
    assert entered == [1, 2]
    assert not calls._depths


def test_they_go_on_once_it_is_clear_that_something_waits(calls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter_end, "HOLD_SECS", 0.05)
    calls.end()
    entered: list[int] = []
    thread = in_thread(two_calls(calls, entered))
    thread.join(60)
    assert entered == [1, 2]
    assert not calls._depths
    # No other thread is held back again.
    assert calls._hold_ended.is_set()


@contextmanager
def a_thread_inside(calls: Any) -> Iterator[threading.Thread]:
    """A thread that is inside a call until the block ends."""
    inside, leave = threading.Event(), threading.Event()

    def body() -> None:
        with calls:
            inside.set()
            leave.wait(60)

    thread = in_thread(body)
    inside.wait(60)
    try:
        yield thread
    finally:
        leave.set()
        thread.join(60)


def test_the_thread_that_ends_the_program_goes_on(calls: Any) -> None:
    calls.end()
    with calls:
        assert list(calls._depths) == [threading.get_ident()]
    assert not calls.is_over_for_this_thread()


def test_a_call_that_never_ends_is_left_behind_with_a_warning(
    calls: Any, monkeypatch: pytest.MonkeyPatch, tf_log: Any
) -> None:
    monkeypatch.setattr(interpreter_end, "WAIT_SECS", 0.05)
    with a_thread_inside(calls) as thread:
        calls.end()
    assert tf_log.messages[-1].startswith("The program exits while calls of TensorFlow's runtime are still running")
    assert thread.name in tf_log.messages[-1]


def test_an_error_inside_leaves_the_call(calls: Any) -> None:
    with pytest.raises(ValueError, match="the error"), calls:
        raise ValueError("the error")
    assert not calls._depths


def test_a_child_process_waits_for_no_thread_of_its_parent(calls: Any) -> None:
    with a_thread_inside(calls) as thread, calls:
        calls.forget_other_threads()
        assert list(calls._depths) == [threading.get_ident()]
        calls._depths[thread.ident] = 1


def test_no_session_is_deleted_in_a_daemon_thread_once_the_program_ends(
    graph: tf.Graph, calls: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted: list[Any] = []
    session = fastsup.Session()
    monkeypatch.setattr(fastsup.Session, "_completed_before_exit", calls)
    monkeypatch.setattr(session, "close", lambda: deleted.append(True))
    calls.end()
    thread = in_thread(session.__del__)
    thread.join(60)
    assert not deleted
    session.__del__()
    assert deleted


@pytest.mark.one_world
def test_a_session_that_the_main_module_holds_is_closed_when_other_names_are_gone(
    processes: Processes, without_cpp_log: Callable[[str], str]
) -> None:
    program = """
        import ctypes, os, sys
        import tensorflow as tf
        import fastsup
        from tensorflow.python.client import session as tf_session

        # What holds the main module lets its names go last: on Python 3.13 the debugger, which TensorFlow imports.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(sys.modules["__main__"]))

        def close(handle, runtime=tf_session.tf_session.TF_CloseSession, write=os.write):
            runtime(handle)
            write(1, b"closed")

        tf_session.tf_session.TF_CloseSession = close
        session = fastsup.Session(graph=tf.Graph())
        with session.graph.as_default():
            session.run([tf.constant(1.0)])
    """
    ended = processes.python("-c", textwrap.dedent(program), env=ENVIRONMENT, fresh=True)
    assert (ended.returncode, ended.stdout, without_cpp_log(ended.stderr)) == (0, "closed", "")


# Each body is run over and over in daemon threads while the program ends.
BODIES = {
    "plans": "session.run([chain[turn % 50], chain[turn // 50 % 50]])",
    "callables": "session._make_callable_from_options(options)()",
    "sessions": "fastsup.Session(graph=graph).close()",
    "sessions collected": "fastsup.Session(graph=graph)",
    "the session extended": "session._extend_graph()",
    "traced runs": "session.run(chain[1], options=v1.RunOptions())",
}


@pytest.mark.one_world
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_program_that_ends_meanwhile_ends_well(
    body: str, processes: Processes, without_cpp_log: Callable[[str], str]
) -> None:
    program = f"""
        import itertools, threading, time
        import tensorflow as tf
        from tensorflow.core.protobuf import config_pb2
        import fastsup
        v1 = tf.compat.v1

        class SlowToDelete:
            def __del__(self, sleep=time.sleep):
                sleep(0.2)

        slow = SlowToDelete()
        graph = tf.Graph()
        with graph.as_default():
            chain = [tf.constant(1.0)]
            for _ in range(50):
                chain.append(chain[-1] + 1.0)
            session = fastsup.Session()
        options = config_pb2.CallableOptions(fetch=[chain[9].name])
        session.run(chain[0])
        turns = threading.Semaphore(0)

        def work():
            for turn in itertools.count():
                {body}
                turns.release()

        for _ in range(3):
            threading.Thread(target=work, daemon=True).start()
        for _ in range(6):
            turns.acquire()
    """
    ended = processes.python("-c", textwrap.dedent(program), env=ENVIRONMENT)
    assert (ended.returncode, without_cpp_log(ended.stderr)) == (0, "")


@pytest.mark.one_world
@pytest.mark.parametrize("eager", [False, True])
def test_a_forked_child_ends_well_after_a_session_was_closed_in_a_waiting_step(
    eager: bool, processes: Processes, tmp_path: Path, without_cpp_log: Callable[[str], str]
) -> None:
    """The eager context's threads aren't in the child, which must not wait for them."""
    program = f"""
        import os, sys, threading, warnings
        import tensorflow as tf
        from fastsup import train
        v1 = tf.compat.v1
        v1.logging.set_verbosity("FATAL")

        def work():
            with tf.Graph().as_default():
                v1.train.get_or_create_global_step()
                v1.get_variable("weights", [100], use_resource=True)
                starved = v1.FIFOQueue(1, tf.float32, shapes=[()]).dequeue()
                hooks = [train.WatchdogHook(0.02, stop=True)]
                with train.MonitoredTrainingSession(checkpoint_dir={str(tmp_path)!r}, hooks=hooks) as session:
                    session.run(starved)

        threading.excepthook = lambda arguments: None
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join()
        if {eager}:
            tf.constant(1.0) + 1.0
        warnings.simplefilter("ignore", DeprecationWarning)  # Of a fork with threads, since 3.12.
        child = os.fork()
        if child:
            sys.exit(abs(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
    """
    ended = processes.python("-c", textwrap.dedent(program), env=ENVIRONMENT)
    assert (ended.returncode, without_cpp_log(ended.stderr)) == (0, "")
