"""How programs with lifted functions end: with their exit code, and without a word."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest
from processes import Processes

pytestmark = pytest.mark.timeout(120)

BEGINNING = """
import os, signal, sys, threading, time, warnings
warnings.simplefilter("ignore")
import tensorflow as tf
import fastsup

v = tf.Variable(0)
step = fastsup.function(lambda: v.assign_add(1), fallback="raise")
step()
assert step.lifted

def for_ever(function, *args):
    started = threading.Event()

    def work():
        while True:
            function(*args)
            started.set()

    for _ in range(2):
        threading.Thread(target=work, daemon=True).start()
    started.wait()
"""

PROGRAMS = {
    "daemon threads": (
        """
        loop = fastsup.function(lambda x: tf.while_loop(lambda i: i < 1000, lambda i: [i + 1], [x]), fallback="raise")
        calling = fastsup.function(lambda x: tf.py_function(lambda y: y + 1, [x], tf.float32), fallback="raise")
        take = fastsup.function(lambda iterator: next(iterator), fallback="raise")
        numbers = iter(tf.data.Dataset.range(10**9).map(lambda x: x + 1, num_parallel_calls=2).prefetch(4))
        concrete = tf.function(lambda x: x + 1.0).get_concrete_function(tf.ones([]))
        for_ever(step)
        for_ever(loop, tf.constant(0))
        for_ever(calling, tf.ones([]))
        for_ever(take, numbers)
        for_ever(lambda: fastsup.function(concrete, fallback="silent")(tf.ones([])))
        time.sleep(0.2)
        """,
        0,
    ),
    "os._exit": ("for_ever(step); os._exit(4)", 4),
    "sys.exit, with calls until the end": (
        """
        import atexit

        class Last:
            def __del__(self, step=step):
                step()

        atexit.register(step)
        kept = Last()
        sys.exit(3)
        """,
        3,
    ),
}

FORK = """
process = os.fork()
if process == 0:
    try:
        step()
    except RuntimeError as error:
        assert "os.fork()" in str(error), error
        os._exit(7)
    os._exit(8)
assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 7
process = os.fork()
if process == 0:
    del step
    sys.exit(9)  # With exit handlers.
assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 9
assert step().numpy() == 2
"""


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(processes: Processes, without_cpp_log: Callable[[str], str]) -> Run:
    """Runs a program after `BEGINNING`, and gives its exit code and what it has said."""

    def run(program: str, **settings: bool) -> tuple[int, str]:
        done = processes.python("-c", BEGINNING + textwrap.dedent(program), timeout=100, **settings)
        return done.returncode, without_cpp_log(done.stderr)

    return run


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_end(run: Run, name: str) -> None:
    program, code = PROGRAMS[name]
    # One of them in an interpreter that has started as users start it.
    assert run(program, fresh=name == "daemon threads") == (code, "")


def test_a_child_by_fork_is_told_why(run: Run) -> None:
    assert run(FORK) == (0, "")
