"""Closing a session on a cluster of which a task is gone."""

from __future__ import annotations

import gc
import textwrap
import threading
from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

import pytest
import tensorflow as tf
from processes import Processes
from tensorflow.python.client import session as tf_session

import fastsup
from fastsup.runtime import session as sessions

v1 = tf.compat.v1

RunScript = Callable[[str], CompletedProcess[str]]


@pytest.fixture
def session(graph: tf.Graph) -> Any:
    """A session on a server in this process, on which a variable was made."""
    server = tf.distribute.Server.create_local_server()
    tf.constant(1.0)
    session = fastsup.Session(server.target)
    assert session.run(graph.get_tensor_by_name("Const:0")) == 1
    return session


def test_it_is_closed_once(session: Any) -> None:
    session.close()
    session.close()
    with pytest.raises(RuntimeError, match="Attempted to use a closed Session"):
        session.run("Const:0")


def test_what_closing_raises_is_raised(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def close(handle: Any) -> None:
        raise tf.errors.InternalError(None, None, "in the runtime")

    monkeypatch.setattr(tf_session.tf_session, "TF_CloseSession", close)
    with pytest.raises(tf.errors.InternalError, match="in the runtime"):
        session.close()


def test_a_task_that_is_gone_holds_nobody_up(session: Any, monkeypatch: pytest.MonkeyPatch, tf_log: Any) -> None:
    gone = threading.Event()
    monkeypatch.setattr(tf_session.tf_session, "TF_CloseSession", lambda handle: gone.wait(60))
    monkeypatch.setattr(sessions, "CLOSE_SECS", 0.05)
    before = set(threading.enumerate())
    session.close()
    (left,) = set(threading.enumerate()) - before
    # It keeps no process from ending.
    assert left.daemon
    assert tf_log.messages[-1].startswith(f"A session of {session.sess_str.decode()} couldn't be closed within 0.05 s")
    # The cause isn't known.
    assert "Either a task of its cluster doesn't answer, or a run " in tf_log.messages[-1]
    gone.set()
    left.join(60)
    assert not left.is_alive()


@pytest.mark.parametrize("is_dropped", [False, True])
def test_a_session_that_the_runtime_works_on_is_not_deleted(
    graph: tf.Graph, monkeypatch: pytest.MonkeyPatch, is_dropped: bool
) -> None:
    """Its close would use freed memory when it comes back."""
    gone = threading.Event()
    deleted: list[Any] = []
    server = tf.distribute.Server.create_local_server()
    gc.collect()  # Sessions of other tests.
    session = fastsup.Session(server.target)
    handle = session._session
    monkeypatch.setattr(tf_session.tf_session, "TF_CloseSession", lambda handle: gone.wait(60))
    monkeypatch.setattr(tf_session.tf_session, "TF_DeleteSession", deleted.append)
    monkeypatch.setattr(sessions, "CLOSE_SECS", 0.05)
    try:
        if not is_dropped:
            session.close()
        del session
        gc.collect()
        assert all(other is not handle for other in deleted)
    finally:
        gone.set()


def test_a_session_of_this_process_is_closed_in_the_calling_thread(
    graph: tf.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    callers = []
    monkeypatch.setattr(
        tf_session.tf_session, "TF_CloseSession", lambda handle: callers.append(threading.current_thread())
    )
    fastsup.Session().close()
    assert callers == [threading.current_thread()]


@pytest.fixture
def run_script(processes: Processes) -> RunScript:
    """Runs a program in another process."""
    return lambda script: processes.python("-c", textwrap.dedent(script))


@pytest.mark.one_world
def test_a_session_that_nobody_closes_lets_the_process_end(run_script: RunScript) -> None:
    result = run_script("""
        import tensorflow as tf
        import fastsup

        graph = tf.Graph()
        with graph.as_default():
            c = tf.constant(1.5)
            session = fastsup.Session(tf.distribute.Server.create_local_server().target)
            print(session.run(c))
    """)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "1.5\n"


@pytest.mark.one_world
def test_a_server_that_was_killed_holds_nobody_up(run_script: RunScript) -> None:
    """Nor do the callables of its session."""
    result = run_script("""
        import os, signal, subprocess, sys, time
        import tensorflow as tf
        import fastsup
        from fastsup.runtime import session as sessions

        server = subprocess.Popen(
            [sys.executable, "-c", "import tensorflow as tf, time\\n"
             "print(tf.distribute.Server.create_local_server().target, flush=True)\\ntime.sleep(90)"],
            stdout=subprocess.PIPE, text=True)
        sessions.CLOSE_SECS = 0.5
        try:
            target = server.stdout.readline().strip()
            with tf.Graph().as_default():
                constants = [tf.constant(float(number)) for number in range(4)]
                session = fastsup.Session(target)
                assert [session.run(constant) for constant in constants] == [0.0, 1.0, 2.0, 3.0]
        finally:
            server.kill()
            server.wait()
        begun = time.monotonic()
        session.close()
        print("closed" if time.monotonic() - begun < 10 else "late", flush=True)
        # What TensorFlow does with the rest of the session at the process's end is not looked at.
        os._exit(0)
    """)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "closed\n"


@pytest.mark.one_world
@pytest.mark.parametrize("ends", [True, False])
def test_the_end_of_the_program_waits_a_little(ends: bool, run_script: RunScript) -> None:
    """What comes back from the runtime while Python is being taken down would abort the process."""
    result = run_script(f"""
        import threading, time
        from fastsup.runtime import session as sessions

        sessions.CLOSE_SECS, sessions._EXIT_SECS = 0.05, 60 if {ends} else 0.2
        left_behind = threading.Event()

        def close():
            # It is still under way when the program has gone on, and for a while after that.
            if not left_behind.wait(30):
                print("held up", flush=True)
            time.sleep(1 if {ends} else 1_000)
            print("back", flush=True)

        sessions.close_remote(close, "a server")
        print("left behind", flush=True)
        left_behind.set()
    """)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "left behind\n" + ("back\n" if ends else "")
