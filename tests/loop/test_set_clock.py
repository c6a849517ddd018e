"""The system's clock is set back by an hour: what waits for a time mustn't wait an hour longer."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import Processes

SET_BACK = """
import ctypes, time
def set_clock_back():
    before = time.time()
    ctypes.CDLL(None).set_clock_back(3600)
    assert time.time() < before - 3500
"""

LOOP = """
from fastsup.loop import StepLoop, StopWhenHook, TimeLimitHook
def step():
    time.sleep(0.001)
    if loop.global_step == 20:
        set_clock_back()
seen = []
hooks = [HOOKS]
loop = StepLoop(step, hooks, max_steps=10**6)
loop.run()
print("ended", loop.steps < 10**5)
"""

TIME_LIMIT = "TimeLimitHook(0.2)"
PERIODIC = "StopWhenHook(lambda loop: seen.append(1) or len(seen) == 5, every_secs=0.05)"

SESSION = """
import tensorflow as tf
import fastsup
from fastsup.train.session.session_manager import WaitLog
log = WaitLog(30)
hook = fastsup.estimator.StopAtSecsHook(0.2)
with tf.Graph().as_default():
    step = tf.compat.v1.assign_add(tf.compat.v1.train.get_or_create_global_step(), 1)
    with fastsup.train.MonitoredSession(hooks=[hook]) as session:
        session.run(step)
        set_clock_back()
        while not session.should_stop():
            session.run(step)
print("ended", 0.2 <= log.waited() < 60)
"""


@pytest.fixture(scope="module")
def run(processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Runs a program that can set its clock back."""
    if sys.platform != "linux":
        pytest.skip("a library can be preloaded on Linux")
    library = tmp_path_factory.mktemp("clock") / "set_clock.so"
    compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
    source = Path(__file__).with_name("set_clock.c")
    processes.run(compiler, "-shared", "-fPIC", "-o", library, source, check=True)

    def program(text: str) -> str:
        environment = {**os.environ, "LD_PRELOAD": f"{library} {os.environ.get('LD_PRELOAD', '')}"}
        done = processes.python("-c", SET_BACK + text, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return program


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("hook", [TIME_LIMIT, PERIODIC])
def test_a_loop_by_time(run: Callable[[str], str], hook: str) -> None:
    assert run(LOOP.replace("HOOKS", hook)) == "ended True\n"


@pytest.mark.one_world
def test_a_session_that_stops_by_time(run: Callable[[str], str]) -> None:
    assert run(SESSION) == "ended True\n"
