"""What ProgressHook shows of a session: lines in a stream, bars in a terminal, and how it ends."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from processes import Processes

import fastsup
from fastsup import train
from fastsup.estimator.model.evaluate_once import StopAfterNEvalsHook, evaluate_once

v1 = tf.compat.v1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    return Terminal()


def lines(file: io.StringIO) -> list[str]:
    return file.getvalue().splitlines()


def run(session: Any, fetches: Any, count: int, clock: Any, secs: float) -> None:
    """So many runs, each of which takes so long."""
    for _ in range(count):
        clock.now += secs
        session.run(fetches)


@pytest.mark.parametrize("session_of", ["MonitoredSession", "SingularMonitoredSession", "MonitoredTrainingSession"])
def test_lines_every_ten_seconds_with_end_and_tensors(session_of: str, step_tensor: Any, clock: Any) -> None:
    file = io.StringIO()
    loss = tf.constant(0.25)
    # The hook that knows the end comes after it in the list.
    hooks = [train.ProgressHook({"loss": loss}, file=file), train.StopAtStepHook(num_steps=30)]
    with getattr(train, session_of)(hooks=hooks) as session:
        run(session, step_tensor, 30, clock, 1.0)
    assert lines(file) == [
        "step 11 of 30 (37%), 1.1 steps/s, loss 0.25, 0:00:17 left",
        "step 21 of 30 (70%), 1 steps/s, loss 0.25, 0:00:09 left",
        "step 30 of 30 (100%), 1 steps/s, loss 0.25 at step 21",
    ]


@pytest.mark.parametrize("stop", [{"last_step": 30}, {"num_steps": 30}])
@pytest.mark.parametrize("is_first", [True, False])
def test_the_end_of_a_hook_of_loops_beside_it(step_tensor: Any, clock: Any, is_first: bool, stop: Any) -> None:
    file = io.StringIO()
    hooks = [train.ProgressHook(file=file), fastsup.loop.StopAtStepHook(**stop)]
    with train.MonitoredSession(hooks=hooks if is_first else hooks[::-1]) as session:
        run(session, step_tensor, 30, clock, 1.0)
    assert lines(file)[0] == "step 11 of 30 (37%), 1.1 steps/s, 0:00:17 left"
    assert lines(file)[-1] == "step 30 of 30 (100%), 1 steps/s"


def test_the_same_lines_in_the_sessions_of_tensorflow(impl: Any, step_tensor: Any, clock: Any) -> None:
    """But for the end, which no session of TensorFlow's tells."""
    file = io.StringIO()
    hooks = [train.ProgressHook(total=40, file=file), v1.train.StopAtStepHook(last_step=30)]
    with impl.train.MonitoredSession(hooks=hooks) as session:
        run(session, step_tensor, 30, clock, 1.0)
    assert lines(file) == [
        "step 11 of 40 (28%), 1.1 steps/s, 0:00:26 left",
        "step 21 of 40 (52%), 1 steps/s, 0:00:19 left",
        "step 30 of 40 (75%), 1 steps/s, 0:00:10 left",
    ]


def test_it_is_called_only_when_it_is_due(step_tensor: Any, clock: Any) -> None:
    calls: list[str] = []

    class Hook(train.ProgressHook):
        def _schedule(self, run: int, step_read: Any) -> bool:
            calls.append("scheduled")
            return super()._schedule(run, step_read)

        def _step_after_run(self, session: Any) -> Any:
            calls.append("called")
            return super()._step_after_run(session)

    with train.MonitoredSession(hooks=[Hook(every_secs=10, file=io.StringIO())]) as session:
        run(session, step_tensor, 2, clock, 1.0)
        calls.clear()
        run(session, step_tensor, 8, clock, 1.0)
        session.run(step_tensor)
        # Nothing in the runs that follow the first one.
        assert calls == []
        run(session, step_tensor, 1, clock, 1.0)
        assert calls == ["called"]


def test_in_run_loop(step_tensor: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with train.MonitoredTrainingSession(hooks=[train.StopAtStepHook(500)], progress=True) as session:
        session.run_loop(step_tensor)
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert line.startswith("step 500 of 500 (100%), ")


def test_a_session_without_global_step_counts_its_runs(graph: Any, clock: Any) -> None:
    file = io.StringIO()
    value = tf.constant(1)
    with train.SingularMonitoredSession(hooks=[train.ProgressHook(file=file)]) as session:
        run(session, value, 25, clock, 1.0)
    assert lines(file) == ["step 11, 1.1 steps/s", "step 21, 1 steps/s", "step 25, 1 steps/s"]


def test_an_evaluation_counts_batches(step_tensor: Any, clock: Any) -> None:
    file = io.StringIO()

    class Passing(v1.train.SessionRunHook):
        def before_run(self, run_context: Any) -> None:
            clock.now += 1.0

    shown = train.ProgressHook({"loss": tf.constant(0.25)}, file=file)
    hooks = [Passing(), StopAfterNEvalsHook(25, log_progress=False), shown]
    evaluate_once(None, "", None, tf.no_op(), {"step": v1.train.get_global_step()}, hooks, None)
    assert lines(file) == [
        "evaluating batch 12 of 25 (48%), 1.09 steps/s, loss 0.25, 0:00:12 left",
        "evaluating batch 23 of 25 (92%), 1 steps/s, loss 0.25, 0:00:02 left",
        "evaluating batch 25 of 25 (100%), 1 steps/s, loss 0.25 at batch 23",
    ]


@pytest.mark.parametrize(
    ("last_step", "end"), [(40, 40), (float("inf"), None), (float("nan"), None), (50.5, 50), (None, None)]
)
def test_the_end_is_what_the_hook_says_now(step_tensor: Any, clock: Any, last_step: Any, end: Any) -> None:
    """Programs change the end while they run."""
    file = io.StringIO()
    stop = train.StopAtStepHook(last_step=30)
    with train.MonitoredSession(hooks=[train.ProgressHook(file=file), stop]) as session:
        run(session, step_tensor, 2, clock, 1.0)
        stop._last_step = last_step
        stop.after_run = lambda *_: None  # type: ignore[method-assign]
        run(session, step_tensor, 10, clock, 1.0)
    assert lines(file)[0].startswith("step 11, " if end is None else f"step 11 of {end} ")


def test_the_argument_adds_no_second_hook(step_tensor: Any, clock: Any) -> None:
    file = io.StringIO()
    hooks = [train.ProgressHook(file=file)]
    with train.MonitoredTrainingSession(hooks=hooks, progress=True) as session:
        run(session, step_tensor, 3, clock, 1.0)
    assert lines(file) == ["step 3, 1.5 steps/s"]


def test_a_bar_in_a_terminal(step_tensor: Any, clock: Any, terminal: Terminal) -> None:
    hooks = [train.ProgressHook({"loss": tf.constant(0.5)}, file=terminal), train.StopAtStepHook(20)]
    with train.MonitoredSession(hooks=hooks) as session:
        run(session, step_tensor, 20, clock, 0.1)
    shown = terminal.getvalue()
    for part in ("step 0 of 20", "step 3 of 20", "step 20 of 20", "10 steps/s", "loss 0.5"):
        assert part in shown
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1


def test_an_evaluation_in_a_training_is_a_second_bar(step_tensor: Any, clock: Any, terminal: Terminal) -> None:
    with train.MonitoredSession(hooks=[train.ProgressHook(file=terminal), train.StopAtStepHook(4)]) as session:
        run(session, step_tensor, 2, clock, 1.0)
        with tf.Graph().as_default():
            v1.train.get_or_create_global_step()
            hooks = [StopAfterNEvalsHook(3, log_progress=False), train.ProgressHook(file=terminal)]
            evaluate_once(None, "", None, tf.no_op(), {}, hooks, None)
        evaluated = terminal.getvalue()
        run(session, step_tensor, 2, clock, 1.0)
    assert "evaluating batch 0 of 3" in evaluated
    assert evaluated.rindex("step 2 of 4") > evaluated.index("evaluating batch 0 of 3")
    shown = terminal.getvalue()[len(evaluated) :]
    assert "step 4 of 4" in shown
    assert shown.count("\x1b[?25h") == 1


class Failure(Exception):
    pass


@pytest.mark.parametrize("end", ["hook", "body", "run", "close", "recovered", "out of range"])
def test_the_terminal_gets_its_cursor_and_its_streams_back(
    end: str, step_tensor: Any, clock: Any, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal)
    handler = logging.StreamHandler(terminal)
    logger = logging.getLogger("test_progress_hook")
    logger.addHandler(handler)
    failures = [Failure()] if end in ("hook", "body") else [tf.errors.AbortedError(None, None, "")]

    def fail() -> None:
        if failures:
            raise failures.pop()

    fails = tf.raw_ops.Assert(condition=tf.constant(False), data=[tf.constant("failed")])

    class Failing(v1.train.SessionRunHook):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            if end in ("hook", "recovered"):
                fail()

    try:
        with train.MonitoredSession(hooks=[train.ProgressHook(), Failing()]) as session:
            run(session, step_tensor, 2, clock, 1.0)
            assert handler.stream is not terminal
            logger.warning("a line of the log")
            if end == "body":
                raise Failure
            if end == "run":
                session.run(fails)
            if end == "out of range":
                raise tf.errors.OutOfRangeError(None, None, "")
    except (Failure, tf.errors.InvalidArgumentError):
        assert end in ("hook", "body", "run")
    finally:
        logger.removeHandler(handler)
    assert sys.stderr is terminal
    assert handler.stream is terminal
    shown = terminal.getvalue()
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") >= 1
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")
    if end != "hook":
        assert "a line of the log\n" in shown


def test_a_stream_that_is_redirected_to_a_file_keeps_its_text(
    step_tensor: Any, clock: Any, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = io.StringIO()
    monkeypatch.setattr(sys, "stdout", output)
    with train.MonitoredSession(hooks=[train.ProgressHook(file=terminal)]) as session:
        run(session, step_tensor, 2, clock, 1.0)
        print("a result")
        run(session, step_tensor, 2, clock, 1.0)
    assert output.getvalue() == "a result\n"
    assert "a result" not in terminal.getvalue()


PROGRAM = """
import os, signal, sys
import tensorflow as tf
from fastsup import train
v1 = tf.compat.v1
with tf.Graph().as_default():
    step = v1.assign_add(v1.train.get_or_create_global_step(), 1)
    session = train.MonitoredTrainingSession(checkpoint_dir=sys.argv[1], progress=True)
    for number in range(1000):
        session.run(step)
    if sys.argv[2] == "signal":
        os.kill(os.getpid(), signal.SIGTERM)
        with session:
            while True:
                session.run(step)
"""


@pytest.mark.one_world
@pytest.mark.parametrize(("end", "code"), [("signal", 128 + signal.SIGTERM), ("left open", 0)])
def test_ends_of_a_program_in_a_terminal(end: str, code: int, tmp_path: Path, processes: Processes) -> None:
    master, slave = os.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "TF_CPP_MIN_LOG_LEVEL": "3"}
    process = processes.start_python(
        "-c", PROGRAM, tmp_path, end, stdin=slave, stdout=slave, stderr=slave, env=environment
    )
    os.close(slave)
    parts = []
    try:
        # Reading fails once the other side is closed.
        with contextlib.suppress(OSError):
            while True:
                parts.append(os.read(master, 65536))
    finally:
        os.close(master)
        returned = process.wait(60)
    shown = b"".join(parts).decode(errors="replace")
    assert returned == code, shown
    assert "step 0" in shown
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: train.ProgressHook("loss"), TypeError, "tensors must be a dictionary from names to tensors.*'loss'"),
        (lambda: train.ProgressHook(3), TypeError, "tensors must be a dictionary from names to tensors.*got 3"),
        (lambda: train.ProgressHook(tf.constant(1.0)), TypeError, "Pass {'loss': loss} for the tensor loss"),
        (lambda: train.ProgressHook(total=0), ValueError, "total must be positive.*got 0"),
        (lambda: train.ProgressHook(every_secs=-1), ValueError, "every_secs must be positive, got -1"),
        (lambda: train.ProgressHook(file="x"), TypeError, r"file must be a text stream.*got 'x'"),
        (lambda: train.MonitoredTrainingSession(progress=1), TypeError, "progress must be True or False, got 1"),
        (lambda: train.SingularMonitoredSession(progress="yes"), TypeError, "progress must be True or False"),
        (lambda: fastsup.estimator.RunConfig(progress=1), ValueError, "progress must be True or False; got 1"),
    ],
)
def test_wrong_arguments(make: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()
