"""Intervals that are likely a mistake, and that TensorFlow takes: they act on the same steps, and a warning says so."""

from __future__ import annotations

import glob
import math
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from fastsup import train

v1 = tf.compat.v1

STEPS = 5
NAN, INF = float("nan"), float("inf")
VALUES = [0, -1, -INF, np.int64(0), np.float32(-1), False, NAN, INF, 0.5]
HOOKS = [
    ("CheckpointSaverHook", "save_steps"),
    ("CheckpointSaverHook", "save_secs"),
    ("StepCounterHook", "every_n_secs"),
    ("StepCounterHook", "every_n_steps"),
    ("SummarySaverHook", "save_steps"),
    ("SummarySaverHook", "save_secs"),
    ("ProfilerHook", "save_steps"),
    ("ProfilerHook", "save_secs"),
    ("LoggingTensorHook", "every_n_secs"),
]


def steps_of_action(impl: Any, folder: Path, name: str, argument: str, value: Any, log: Any) -> list[int]:
    """Runs five steps with the hook, and finds those on which it has acted."""
    start = len(log.text)
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        train_op = v1.assign_add(step, 1)
        more: dict[str, Any] = {argument: value}
        if name == "CheckpointSaverHook":
            more |= {"checkpoint_dir": str(folder), "saver": v1.train.Saver(max_to_keep=99), "save_graph_def": False}
        if name == "StepCounterHook":
            more |= {"output_dir": str(folder)} | ({"every_n_steps": None} if argument == "every_n_secs" else {})
        if name == "SummarySaverHook":
            more |= {"output_dir": str(folder), "summary_op": v1.summary.scalar("s", step)}
        if name == "ProfilerHook":
            more |= {"output_dir": str(folder)}
        if name == "LoggingTensorHook":
            more |= {"tensors": {"step": train_op}}
        hook = getattr(impl.train, name)(**more)
        with impl.train.MonitoredSession(hooks=[hook]) as session:
            for _ in range(STEPS):
                session.run(train_op)
    v1.summary.FileWriterCache.clear()
    said = log.text[start:]
    if name == "CheckpointSaverHook":
        return [int(found) for found in re.findall(r"Saving checkpoints for (\d+) into", said)]
    if name == "LoggingTensorHook":
        return [int(found) for found in re.findall(r"step = (\d+)", said)]
    if name == "ProfilerHook":
        return sorted(int(path.rpartition("-")[2][:-5]) for path in glob.glob(str(folder / "timeline-*.json")))
    return [
        event.step
        for path in sorted(glob.glob(str(folder / "events.*")))
        for event in v1.train.summary_iterator(path)
        if event.HasField("summary")
    ]


@pytest.mark.slow
@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize(("name", "argument"), HOOKS)
def test_they_act_on_the_steps_of_tensorflow(
    both: Any, tmp_path: Path, tf_log: Any, name: str, argument: str, value: Any
) -> None:
    if value == 0.5 and argument.endswith("secs"):
        pytest.skip("half a second of real time")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "ours").mkdir()
    theirs = steps_of_action(both.tensorflow, tmp_path / "theirs", name, argument, value, tf_log)
    start = len(tf_log.text)
    ours = steps_of_action(both.fastsup, tmp_path / "ours", name, argument, value, tf_log)
    assert ours == theirs
    assert ours or name == "StepCounterHook" or (name == "ProfilerHook" and not value < INF)
    doubtful = value < 0 or math.isnan(value)
    assert (
        f"{argument} is NaN" in tf_log.text[start:] or f"{argument}={value!r} is" in tf_log.text[start:]
    ) == doubtful


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("argument", ["every_secs", "every_steps"])
def test_timers_decide_as_tensorflows(both: Any, argument: str, value: Any) -> None:
    answers = []
    for impl in (both.tensorflow, both.fastsup):
        timer = impl.train.SecondOrStepTimer(**{argument: value})
        answers.append([])
        for step in (3, 3, 4, 4, 9, 2**40):
            due = timer.should_trigger_for_step(step)
            answers[-1].append(due)
            if due and step != 4:
                timer.update_last_triggered_step(step)
    if value != 0.5 or argument == "every_steps":
        assert answers[0] == answers[1]


@pytest.mark.parametrize("value", ["10", [], object(), None])
@pytest.mark.parametrize(("name", "argument"), HOOKS)
def test_what_is_no_number_is_refused(graph: Any, tmp_path: Path, name: str, argument: str, value: Any) -> None:
    first = [str(tmp_path / "new")] if name == "CheckpointSaverHook" else [[]] if name == "LoggingTensorHook" else []
    more: dict[str, Any] = {argument: value}
    if name == "StepCounterHook" and argument == "every_n_secs":
        more["every_n_steps"] = None
    threads = set(threading.enumerate())
    with pytest.raises((TypeError, ValueError)) as raised:
        getattr(train, name)(*first, **more)
    assert argument in str(raised.value) or value is None
    assert set(threading.enumerate()) <= threads
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [-1, NAN, -INF, np.float32(-2)])
@pytest.mark.parametrize("argument", ["save_summaries_secs", "save_model_secs", "stop_grace_secs"])
def test_seconds_of_a_supervisor(impl: Any, tmp_path: Path, tf_log: Any, argument: str, value: Any) -> None:
    if impl.name == "tensorflow" and tf.executing_eagerly():
        pytest.skip("under TF 2 behaviour TensorFlow's services fail, whatever the interval")
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        train_op = v1.assign_add(step, 1)
        v1.summary.scalar("s", step)
        more: dict[str, Any] = {"save_summaries_secs": 0, "save_model_secs": 0, argument: value}
        sv = impl.train.Supervisor(logdir=str(tmp_path), **more)
        with sv.managed_session() as session:
            for _ in range(STEPS):
                session.run(train_op)
    if impl.name == "fastsup":
        assert f"{argument} is NaN" in tf_log.text or f"{argument}={value!r} is negative" in tf_log.text


@pytest.mark.parametrize("value", [-1, NAN, 0])
def test_a_supervisors_loop_without_a_pause(impl: Any, graph: Any, value: float) -> None:
    sv = impl.train.Supervisor()
    calls: list[int] = []
    several = threading.Event()

    def target() -> None:
        calls.append(1)
        if len(calls) >= 5:
            several.set()

    thread = sv.loop(value, target)
    try:
        assert several.wait(20)
    finally:
        sv.request_stop()
        thread.join(20)


@pytest.mark.parametrize("value", [0, -1, False])
def test_no_pause_between_two_looks_at_a_model(impl: Any, graph: Any, tmp_path: Path, value: Any) -> None:
    w = v1.get_variable("w", [])
    ready = v1.report_uninitialized_variables()
    manager = impl.train.SessionManager(ready_op=ready, recovery_wait_secs=value)
    with manager.prepare_session("", init_op=w.initializer) as session:
        assert session.run(ready).size == 0


@pytest.mark.parametrize("value", [0, -2])
def test_a_limit_without_a_pause_is_a_limit(graph: Any, tmp_path: Path, value: float) -> None:
    manager = train.SessionManager(ready_op=v1.report_uninitialized_variables(), recovery_wait_secs=value)
    v1.get_variable("w", [])
    with pytest.raises(tf.errors.DeadlineExceededError):
        train.SessionManager(ready_op=v1.report_uninitialized_variables(), recovery_wait_secs=value).wait_for_session(
            "", max_wait_secs=0.2
        )
    session, restored = manager.recover_session(
        "", v1.train.Saver(), checkpoint_dir=str(tmp_path), wait_for_checkpoint=True, max_wait_secs=0.2
    )
    session.close()
    assert not restored


@pytest.mark.parametrize("value", ["10", [3]])
def test_an_interval_of_logged_runs_that_is_no_number(value: Any) -> None:
    with pytest.raises(TypeError, match=r"every_n_iter must be a number, got .* of type "):
        train.LoggingTensorHook([], every_n_iter=value)
