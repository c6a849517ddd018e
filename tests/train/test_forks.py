"""A child of `os.fork()` leaves the block of its parent's session: no thread of the runtime is there to wait for."""

from __future__ import annotations

from pathlib import Path

import pytest
from processes import Processes

PROGRAM = """
import os, sys, warnings
warnings.simplefilter("ignore")
import tensorflow as tf
import fastsup
folder = sys.argv[1]

def leave():
    if OWN_ERROR:
        sys.exit(5)

PREPARE
parent = os.getpid()
try:
    with BLOCK as session:
        if os.fork() == 0:
            leave()
except RuntimeError as error:
    print(os.getpid() != parent, error, flush=True)
    os._exit(3)
except SystemExit as error:
    os._exit(error.code)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""

SESSION = "fastsup.train.MonitoredTrainingSession(checkpoint_dir=folder, async_save={})"
SUPERVISOR = "fastsup.train.Supervisor(logdir=folder).managed_session()"
# What comes before the block of a session.
GRAPH = "tf.compat.v1.disable_eager_execution(); tf.compat.v1.train.get_or_create_global_step()"


def run(processes: Processes, folder: Path, block: str, own_error: bool) -> str:
    program = PROGRAM.replace("BLOCK", block).replace("OWN_ERROR", str(own_error))
    program = program.replace("PREPARE", GRAPH)
    done = processes.python("-c", program, folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.one_world
@pytest.mark.parametrize("block", [SESSION.format(False), SESSION.format(True), SUPERVISOR])
def test_it_is_told(tmp_path: Path, block: str, processes: Processes) -> None:
    said, code = run(processes, tmp_path, block, own_error=False).splitlines()
    what = "The Supervisor can't be stopped" if block == SUPERVISOR else "The session can't be closed"
    assert said.startswith(f"True {what}: it was made in process ")
    assert "os.fork()" in said
    assert code == "3"


@pytest.mark.one_world
@pytest.mark.parametrize("block", [SESSION.format(True), SUPERVISOR])
def test_an_exit_of_its_own_goes_on(tmp_path: Path, block: str, processes: Processes) -> None:
    assert run(processes, tmp_path, block, own_error=True) == "5\n"


@pytest.mark.first_cases(2)
@pytest.mark.one_world
@pytest.mark.parametrize("executor", ["thread_pool", "inline", "single_threaded"])
@pytest.mark.parametrize("kind", ["Session", "MonitoredSession", "run_loop"])
def test_a_run_in_the_child_is_an_error(kind: str, executor: str, processes: Processes) -> None:
    """It would wait for threads that aren't there. The parent goes on."""
    program = f"""
import os, warnings
warnings.simplefilter("ignore")
import tensorflow as tf
import fastsup
v1 = tf.compat.v1
v1.disable_eager_execution()
step = v1.assign_add(v1.train.get_or_create_global_step(), 1)
other = tf.constant(3.0) + 1.0
if {kind!r} == "Session":
    session = raw = fastsup.Session(executor={executor!r})
    session.run(v1.global_variables_initializer())
else:
    session = fastsup.train.MonitoredSession(fastsup.train.ChiefSessionCreator(executor={executor!r}))
    raw = session.raw_session()
def run(fetches):
    return session.run_loop(fetches, steps=1) if {kind!r} == "run_loop" else session.run(fetches)
run(step)
child = os.fork()
if child == 0:
    for session_of_child in (run, raw.run):
        for fetches in (step, other):
            try:
                session_of_child(fetches)
            except RuntimeError as error:
                print(error, flush=True)
    os._exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(run(step))
session.close()
"""
    done = processes.python("-c", program, fresh=True)
    assert done.returncode == 0, done.stderr
    *said, code, result = done.stdout.splitlines()
    assert len(said) == 4
    assert all(line.startswith("The session can't run: it was made in process ") for line in said)
    assert (code, result) == ("3", "2")
