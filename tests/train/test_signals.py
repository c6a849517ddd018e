"""SIGTERM and SIGINT: the table of docs/signals.md, compared with what happens; and what is left of it afterwards."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorflow as tf
from processes import Processes

from fastsup import train
from fastsup.common import stop_signals
from fastsup.loop import CheckpointHook

v1 = tf.compat.v1

_SPEC = importlib.util.spec_from_file_location(
    "signal_table", os.path.join(os.path.dirname(__file__), "signal_table.py")
)
assert _SPEC is not None
assert _SPEC.loader is not None
signal_table = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(signal_table)


@pytest.mark.parametrize("name", list(signal_table.STATES))
def test_a_training_ends_as_the_page_says(name: str, processes: Processes) -> None:
    measured = signal_table.measure(name, processes.start_python)
    assert signal_table.as_expected(name, measured), measured
    # Of what it waits for, nothing but the step takes time.
    assert measured.seconds < 60
    assert signal_table.row(name) in signal_table.rows_of_the_page()


def test_the_page_has_no_other_rows() -> None:
    assert signal_table.rows_of_the_page() == [signal_table.row(name) for name in signal_table.STATES]


# In this process, where nobody is killed.


def handlers() -> list[Any]:
    return [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]


@pytest.fixture(autouse=True)
def before() -> Iterator[list[Any]]:
    """The handlers before the test, which they are after it too, whatever happened."""
    found = handlers()
    assert found == [signal.SIG_DFL, signal.default_int_handler]
    yield found
    assert handlers() == found
    assert not stop_signals.received()


def send(number: int) -> None:
    os.kill(os.getpid(), number)


def session(folder: Any, **arguments: Any) -> Any:
    options = {"save_checkpoint_secs": 1000, "log_step_count_steps": None, **arguments}
    return train.MonitoredTrainingSession(checkpoint_dir=str(folder), **options)


def saved(folder: Any) -> str:
    return os.path.basename(v1.train.latest_checkpoint(str(folder)))


def test_they_are_put_back_after_a_normal_end(train_op: Any, tmp_path: Any, before: list[Any]) -> None:
    with session(tmp_path) as training:
        assert handlers() == [stop_signals.on_signal] * 2
        training.run(train_op)
    assert handlers() == before


def test_they_are_put_back_after_an_error(train_op: Any, tmp_path: Any, before: list[Any]) -> None:
    with pytest.raises(KeyError):
        with session(tmp_path):
            raise KeyError("an error")
    assert handlers() == before


def test_they_are_put_back_where_no_session_could_be_made(train_op: Any, tmp_path: Any, before: list[Any]) -> None:
    class Broken(v1.train.SessionRunHook):
        def after_create_session(self, session: Any, coord: Any) -> None:
            raise KeyError("an error")

    with pytest.raises(KeyError):
        session(tmp_path, hooks=[Broken()])
    assert handlers() == before


def test_they_are_put_back_after_a_signal(train_op: Any, tmp_path: Any, before: list[Any]) -> None:
    with pytest.raises(SystemExit) as raised:
        with session(tmp_path) as training:
            training.run(train_op)
            send(signal.SIGTERM)
    assert raised.value.code == 143
    assert handlers() == before
    assert saved(tmp_path) == "model.ckpt-1"


def test_a_session_after_one_that_was_ended(train_op: Any, tmp_path: Any) -> None:
    for steps in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            with session(tmp_path) as training:
                training.run(train_op)
                send(signal.SIGINT)
        assert saved(tmp_path) == f"model.ckpt-{steps}"
    with session(tmp_path) as training:
        assert not training.should_stop()
        training.run(train_op)
    assert saved(tmp_path) == "model.ckpt-3"


# The second signal is a copy of the first one if it comes within 0.2 seconds. Later it ends the process, which must not
# be that of the tests. Where the machine holds the program up between the two, it says so in place of the second.
RECEIVER = """
import os, signal, sys, time
import tensorflow as tf
from fastsup import train
from fastsup.common import stop_signals

if os.environ.get("FASTSUP_TEST_WORLD") == "v1":
    tf.compat.v1.disable_v2_behavior()
folder = sys.argv[1]
got = []

def send():
    os.kill(os.getpid(), signal.SIGTERM)

def session():
    return train.MonitoredTrainingSession(
        checkpoint_dir=folder, save_checkpoint_secs=1000, log_step_count_steps=None
    )

def saved():
    return os.path.basename(train.latest_intact_checkpoint(folder))

def receive():
    with session() as training:
        training.run(train_op)
        sent = time.monotonic()
        send()
        if time.monotonic() - sent > 0.1:
            print("late", flush=True)
            os._exit(0)
        send()  # A copy: a launcher forwards what its child has got, too.
        assert got == [signal.SIGTERM]
        assert not stop_signals.received()
        assert not training.should_stop()
        training.run(train_op)

with tf.Graph().as_default():
    step = tf.compat.v1.train.get_or_create_global_step()
    train_op = tf.compat.v1.assign_add(step, tf.constant(1, tf.int64)).op
    assert stop_signals.install("all workers end.", got.append)
    receive()
    stop_signals.uninstall()
    assert saved() == "model.ckpt-2"
    try:
        with session():
            send()
    except SystemExit as end:
        print("ended with", end.code, flush=True)
    assert got == [signal.SIGTERM]
"""


def test_a_receiver_takes_a_signal_instead_of_the_sessions(processes: Processes, tmp_path: Any) -> None:
    """With collectives, where a task goes on until all of them can end."""
    for attempt in range(signal_table.ATTEMPTS):
        ended = processes.python("-c", RECEIVER, tmp_path / str(attempt))
        if ended.stdout != "late\n":
            break
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "ended with 143\n"


def test_a_loop_that_asks_just_ends(train_op: Any, tmp_path: Any) -> None:
    """The exception comes where the block ends, once the checkpoint is there."""
    seen: list[str] = []

    class Send(v1.train.SessionRunHook):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            send(signal.SIGTERM)
            seen.append("after_run goes on")

        def end(self, session: Any) -> None:
            seen.append("end")

    with pytest.raises(SystemExit):
        with session(tmp_path, hooks=[Send()]) as training:
            while not training.should_stop():
                training.run(train_op)
            seen.append("after the loop")
    assert seen == ["after_run goes on", "after the loop", "end"]
    assert saved(tmp_path) == "model.ckpt-1"


def test_a_loop_that_doesnt_ask_is_ended_by_run(train_op: Any, tmp_path: Any) -> None:
    class Send(v1.train.SessionRunHook):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            send(signal.SIGTERM)

    runs = 0
    with pytest.raises(SystemExit):
        with session(tmp_path, hooks=[Send()]) as training:
            while True:
                training.run(train_op)
                runs += 1
    assert runs == 1
    assert saved(tmp_path) == "model.ckpt-1"


def test_without_a_with_block_close_raises(train_op: Any, tmp_path: Any) -> None:
    class Send(v1.train.SessionRunHook):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            send(signal.SIGINT)

    training = session(tmp_path, hooks=[Send()])
    while not training.should_stop():
        training.run(train_op)
    with pytest.raises(KeyboardInterrupt):
        training.close()
    assert saved(tmp_path) == "model.ckpt-1"


def test_hooks_are_not_told_of_an_error(train_op: Any, tmp_path: Any) -> None:
    told = []

    class Told(v1.train.SessionRunHook):
        def on_error(self, run_context: Any, exception: BaseException) -> None:
            told.append(exception)

    with pytest.raises(SystemExit):
        with session(tmp_path, hooks=[Told()]) as training:
            training.run(train_op)
            send(signal.SIGTERM)
    assert told == []


def test_another_exit_of_the_program_saves_nothing(train_op: Any, tmp_path: Any) -> None:
    """Only the signal's own exception does: sys.exit() in a loop is as it is in TensorFlow."""
    with pytest.raises(SystemExit):
        with session(tmp_path) as training:
            training.run(train_op)
            sys.exit(3)
    assert saved(tmp_path) == "model.ckpt-0"


def test_somebody_elses_handlers_are_left_alone(train_op: Any, tmp_path: Any) -> None:
    def handler(number: int, frame: Any) -> None:
        pass

    signal.signal(signal.SIGTERM, handler)
    try:
        with session(tmp_path) as training:
            assert handlers() == [handler, stop_signals.on_signal]
            training.run(train_op)
            send(signal.SIGTERM)
            training.run(train_op)
        assert handlers() == [handler, signal.default_int_handler]
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert saved(tmp_path) == "model.ckpt-2"


def test_a_handler_that_comes_later_stays(train_op: Any, tmp_path: Any) -> None:
    def handler(number: int, frame: Any) -> None:
        pass

    try:
        with session(tmp_path) as training:
            signal.signal(signal.SIGTERM, handler)
            training.run(train_op)
        assert handlers() == [handler, signal.default_int_handler]
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@pytest.mark.parametrize(
    "arguments", [{"handle_signals": False}, {"checkpoint_dir": None}], ids=["turned off", "nowhere to save to"]
)
def test_nothing_is_watched(train_op: Any, tmp_path: Any, before: list[Any], arguments: Any) -> None:
    with train.MonitoredTrainingSession(**{"checkpoint_dir": str(tmp_path), **arguments}) as training:
        assert handlers() == before
        training.run(train_op)


def test_nothing_is_watched_in_another_thread(graph: Any, train_op: Any, tmp_path: Any, before: list[Any]) -> None:
    seen = []

    def body() -> None:
        with graph.as_default(), session(tmp_path) as training:
            training.run(train_op)
            seen.append(handlers())

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == [before]


SESSIONS: dict[str, Callable[..., Any]] = {
    "MonitoredSession": train.MonitoredSession,
    "SingularMonitoredSession": train.SingularMonitoredSession,
    "MonitoredTrainingSession": train.MonitoredTrainingSession,
    "Supervisor": lambda **arguments: train.Supervisor(**arguments).managed_session(),
}


@pytest.mark.parametrize("kind", ["MonitoredSession", "SingularMonitoredSession", "MonitoredTrainingSession"])
@pytest.mark.parametrize("hook", ["saver", "of loops", "of TensorFlow", "none"])
def test_they_are_watched_by_default_if_a_hook_saves(
    train_op: Any, tmp_path: Any, before: list[Any], kind: str, hook: str
) -> None:
    saves: list[int] = []
    hooks: list[Any] = {
        "saver": [train.CheckpointSaverHook(str(tmp_path), save_steps=1000)],
        "of loops": [CheckpointHook(saves.append, every_steps=1000)],
        "of TensorFlow": [v1.train.CheckpointSaverHook(str(tmp_path), save_steps=1000)],
        "none": [train.StopAtStepHook(last_step=1000)],
    }[hook]
    if hook == "none":
        with SESSIONS[kind](hooks=hooks):
            assert handlers() == before
        return
    with pytest.raises(SystemExit):
        with SESSIONS[kind](hooks=hooks) as training:
            for _ in range(3):
                training.run(train_op)
            send(signal.SIGTERM)
    assert saves == [3] if hook == "of loops" else saved(tmp_path) == "model.ckpt-3"


@pytest.mark.parametrize("kind", SESSIONS)
def test_they_are_watched_if_that_is_wanted(train_op: Any, kind: str) -> None:
    """Also where nothing is saved: the step ends, and the hooks do."""
    arguments = {"save_summaries_secs": 0} if kind == "Supervisor" else {}
    with pytest.raises(SystemExit):
        with SESSIONS[kind](handle_signals=True, **arguments) as training:
            training.run(train_op)
            assert handlers() == [stop_signals.on_signal] * 2
            send(signal.SIGTERM)


@pytest.mark.parametrize("kind", ["MonitoredSession", "SingularMonitoredSession", "MonitoredTrainingSession"])
def test_they_are_left_alone_if_that_is_wanted(train_op: Any, tmp_path: Any, before: list[Any], kind: str) -> None:
    hooks = [train.CheckpointSaverHook(str(tmp_path), save_steps=1000)]
    with SESSIONS[kind](hooks=hooks, handle_signals=False) as training:
        training.run(train_op)
        assert handlers() == before


def test_sessions_in_one_another(train_op: Any, tmp_path: Any) -> None:
    """The inner one ends too, and the signals are watched until the outer one has."""
    with pytest.raises(SystemExit):
        with session(tmp_path / "outer") as training:
            training.run(train_op)
            with tf.Graph().as_default():
                add = v1.assign_add(v1.train.get_or_create_global_step(), tf.constant(1, tf.int64)).op
                try:
                    with session(tmp_path / "inner") as evaluation:
                        evaluation.run(add)
                        evaluation.run(add)
                        send(signal.SIGTERM)
                finally:
                    assert handlers()[1] is stop_signals.on_signal
                    assert stop_signals.received()
    assert saved(tmp_path / "outer") == "model.ckpt-1"
    assert saved(tmp_path / "inner") == "model.ckpt-2"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("async_save", [False, True])
def test_a_supervisors_session(train_op: Any, tmp_path: Any, number: int, async_save: bool) -> None:
    sv = train.Supervisor(logdir=str(tmp_path), save_model_secs=1000, save_summaries_secs=0, async_save=async_save)
    with pytest.raises(SystemExit if number == signal.SIGTERM else KeyboardInterrupt):
        with sv.managed_session() as managed:
            while not sv.should_stop():
                managed.run(train_op)
                if v1.train.global_step(managed, v1.train.get_global_step()) == 4:
                    send(number)
    assert saved(tmp_path) == "model.ckpt-4"
    assert sv.should_stop()


def test_a_supervisor_says_that_it_saves(train_op: Any, tmp_path: Any, tf_log: Any) -> None:
    sv = train.Supervisor(logdir=str(tmp_path), save_model_secs=0, save_summaries_secs=0)
    with pytest.raises(SystemExit), sv.managed_session() as managed:
        managed.run(train_op)
        send(signal.SIGTERM)
    assert saved(tmp_path) == "model.ckpt-1"
    assert tf_log.messages.count(f"Saving checkpoint to path {sv.save_path}") == 1


@pytest.mark.parametrize("where", [{"logdir": None}, {"handle_signals": False}])
def test_a_supervisor_that_watches_nothing(train_op: Any, tmp_path: Any, before: list[Any], where: Any) -> None:
    sv = train.Supervisor(**{"logdir": str(tmp_path), "save_summaries_secs": 0, **where})
    with sv.managed_session() as managed:
        assert handlers() == before
        managed.run(train_op)


def test_a_signal_while_the_session_is_being_made(graph: Any, train_op: Any, tmp_path: Any) -> None:
    """There is nothing to be saved yet, and nothing of it is left."""

    class Send(v1.train.SessionRunHook):
        def begin(self) -> None:
            send(signal.SIGTERM)

    with pytest.raises(SystemExit):
        session(tmp_path, hooks=[Send()])
    assert v1.train.latest_checkpoint(str(tmp_path)) is None


def test_while_it_recovers(train_op: Any, tmp_path: Any) -> None:
    """Between two tries there is no session, so nothing to save, but what was saved before."""
    fail = [False]
    tries: list[Any] = []

    class Fail(v1.train.SessionRunHook):
        def after_create_session(self, session: Any, coord: Any) -> None:
            if fail[0]:
                tries.append(session)
                send(signal.SIGTERM)
                raise tf.errors.UnavailableError(None, None, "away")

        def before_run(self, run_context: Any) -> None:
            if fail[0]:
                raise tf.errors.AbortedError(None, None, "preempted")

    with pytest.raises(SystemExit):
        with session(tmp_path, hooks=[Fail()], save_checkpoint_steps=1, save_checkpoint_secs=None) as training:
            training.run(train_op)
            fail[0] = True
            training.run(train_op)
    assert len(tries) == 1
    assert saved(tmp_path) == "model.ckpt-1"


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("in_a_step", [False, True])
def test_a_forked_child_dies_of_the_signal(graph: Any, tmp_path: Any, in_a_step: bool) -> None:
    """Its parent's sessions, and their checkpoints, aren't its own."""
    step = v1.train.get_or_create_global_step()

    def child_of(process: int) -> int:
        if process == 0:
            signal.raise_signal(signal.SIGTERM)
            os._exit(3)
        return os.waitpid(process, 0)[1]

    class Forks(train.SessionRunHook):  # type: ignore[misc]
        status: int | None = None

        def after_run(self, run_context: Any, run_values: Any) -> None:
            self.status = child_of(os.fork())

    forks = Forks()
    with train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), hooks=[forks] if in_a_step else []) as session:
        session.run(step)
        status = forks.status if in_a_step else child_of(os.fork())
        assert status is not None
        assert os.WIFSIGNALED(status)
        assert os.WTERMSIG(status) == signal.SIGTERM
        assert handlers() != [signal.SIG_DFL, signal.default_int_handler]


def test_a_session_that_is_closed_in_another_thread(graph: Any, before: list[Any]) -> None:
    """Only the main thread can change handlers: the next session there does, or the signal itself."""
    step = v1.train.get_or_create_global_step()
    session = train.MonitoredSession(handle_signals=True)
    session.run(step)
    closing = threading.Thread(target=session.close)
    closing.start()
    closing.join()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert handlers() == before


def test_a_session_after_one_that_was_closed_in_another_thread(graph: Any) -> None:
    step = v1.train.get_or_create_global_step()
    session = train.MonitoredSession(handle_signals=True)
    closing = threading.Thread(target=session.close)
    closing.start()
    closing.join()
    with train.MonitoredSession(handle_signals=True) as session:
        session.run(step)
