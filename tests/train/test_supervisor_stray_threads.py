"""Threads that outlive a Supervisor's run: they are named, and it ends."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from processes import Processes

import fastsup
from fastsup import train
from fastsup.common.interpreter_end import thread_stack, warn_of_leaked_threads

v1 = tf.compat.v1
TEXT = (
    "1 thread(s) still running 0.1 seconds after the stop was requested; the run ends without them. See "
    "`python -m fastsup docs dropin#supervisor`."
)


class Deaf:
    """Functions for threads that don't listen to a stop; the test ends them."""

    def __init__(self) -> None:
        self.entered, self.released = threading.Event(), threading.Event()

    def waits_for_something_else(self) -> None:
        self.entered.set()
        self.released.wait(60)


@pytest.fixture
def deaf() -> Iterator[Deaf]:
    made = Deaf()
    yield made
    made.released.set()


@pytest.fixture
def value() -> Iterator[Any]:
    with tf.Graph().as_default():
        yield tf.constant(1.0)


def run_with(sv: Any, deaf: Deaf, error: Exception | None = None) -> None:
    with sv.managed_session():
        sv.loop(10, deaf.waits_for_something_else).name = "Deaf"
        assert deaf.entered.wait(60)
        if error is not None:
            raise error


def warnings_of(tf_log: Any) -> list[str]:
    """What was warned of, but for the supervisor that has no directory."""
    texts = [record.getMessage() for record in tf_log.records if record.levelname == "WARNING"]
    return [text for text in texts if not text.startswith("Standard services need")]


def test_warns(value: Any, deaf: Deaf, tf_log: Any) -> None:
    sv = train.Supervisor(stop_grace_secs=0.1)
    run_with(sv, deaf)
    assert sv.should_stop()
    (text,) = warnings_of(tf_log)
    assert text.startswith(TEXT + "\n")
    assert "\n  " in text
    assert "stack:" in text
    line = deaf.waits_for_something_else.__code__.co_firstlineno + 2
    assert f"{__file__}:{line} in waits_for_something_else\n" in text
    # The innermost frame comes last.
    assert text.index("in run_loop") < text.index("in waits_for_something_else") < text.index("in wait\n")


def test_warns_beside_an_error(value: Any, deaf: Deaf, tf_log: Any) -> None:
    with pytest.raises(KeyError, match="mine"):
        run_with(train.Supervisor(stop_grace_secs=0.1), deaf, KeyError("mine"))
    (text,) = warnings_of(tf_log)
    assert text.startswith(TEXT)


def test_no_warning_without_a_reason(value: Any, deaf: Deaf, tf_log: Any) -> None:
    deaf.released.set()
    run_with(train.Supervisor(stop_grace_secs=60), deaf)
    assert warnings_of(tf_log) == []


def test_threads_that_were_passed(value: Any, deaf: Deaf, tf_log: Any) -> None:
    """A thread of the program's own, which is no daemon."""
    sv = train.Supervisor(stop_grace_secs=0.1)
    thread = threading.Thread(target=deaf.waits_for_something_else, name="Own")
    thread.start()
    sv.stop([thread])
    (text,) = warnings_of(tf_log)
    assert "\n  Own (not a daemon: the process waits for it), stack:\n" in text
    deaf.released.set()
    thread.join(60)


def raising(name: str) -> dict[str, str]:
    return {"stray_threads": "raise"} if name == "fastsup" else {}


def test_raises(impl: Any, value: Any, deaf: Deaf) -> None:
    """As TensorFlow does."""
    sv = impl.train.Supervisor(stop_grace_secs=0.1, **raising(impl.name))
    with pytest.raises(RuntimeError, match=r"^Coordinator stopped with threads still running: Thread-\d+"):
        sv.loop(10, deaf.waits_for_something_else)
        assert deaf.entered.wait(60)
        sv.stop()


def test_error_rather_than_threads(impl: Any, value: Any, deaf: Deaf) -> None:
    with pytest.raises(KeyError, match="mine"):
        run_with(impl.train.Supervisor(stop_grace_secs=0.1, **raising(impl.name)), deaf, KeyError("mine"))


@pytest.mark.parametrize("mode", ["warn", "raise"])
def test_ignored(impl: Any, value: Any, deaf: Deaf, tf_log: Any, mode: str) -> None:
    more = {"stray_threads": mode} if impl.name == "fastsup" else {}
    sv = impl.train.Supervisor(stop_grace_secs=0.1, **more)
    thread = sv.loop(10, deaf.waits_for_something_else)
    assert deaf.entered.wait(60)
    sv.stop(ignore_live_threads=True)
    assert f"Coordinator stopped with threads still running: {thread.name}" in tf_log.messages
    assert [text for text in warnings_of(tf_log) if "deprecated" not in text] == []


PROGRAM = """
import threading, time
import tensorflow as tf
from fastsup import train

with tf.Graph().as_default():
    value = tf.constant(1.0)
    sv = train.Supervisor(stop_grace_secs=0.1)
    entered = threading.Event()

    def sleeps_through_the_stop():
        entered.set()
        time.sleep(1_000)

    with sv.managed_session() as session:
        sv.loop(10, sleeps_through_the_stop)
        assert entered.wait(60)
        assert session.run(value) == 1.0
print("finished")
"""


def test_exit_code(tmp_path: Path, processes: Processes) -> None:
    """A finished program is a success."""
    environment = {**os.environ, "PYTHONPATH": str(Path(fastsup.__file__).parents[1])}
    done = processes.python("-c", PROGRAM, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "finished\n"
    assert "in sleeps_through_the_stop" in done.stderr
    assert "Traceback" not in done.stderr


def test_stacks(deaf: Deaf) -> None:
    thread = threading.Thread(target=deaf.waits_for_something_else)
    assert thread_stack(thread) == []
    thread.start()
    assert deaf.entered.wait(60)
    places = thread_stack(thread)
    assert any(place.startswith(__file__) and place.endswith("in waits_for_something_else") for place in places)
    assert any(place.endswith("in test_stacks") for place in thread_stack(threading.current_thread()))
    deaf.released.set()
    thread.join(60)
    assert thread_stack(thread) == []


def test_several(deaf: Deaf, tf_log: Any) -> None:
    """In one warning, in the order of their names; those that have ended aren't in it."""
    threads = [threading.Thread(target=deaf.waits_for_something_else, name=name, daemon=True) for name in "bca"]
    ended = threading.Thread(target=lambda: None, name="ended")
    for thread in [*threads, ended]:
        thread.start()
    ended.join(60)
    warn_of_leaked_threads([*threads, ended], 2)
    (text,) = warnings_of(tf_log)
    assert text.startswith("3 thread(s) still running 2 seconds after")
    assert [line.strip() for line in text.splitlines() if line.endswith("stack:")] == [
        f"{name}, stack:" for name in "abc"
    ]
    deaf.released.set()
    for thread in threads:
        thread.join(60)
