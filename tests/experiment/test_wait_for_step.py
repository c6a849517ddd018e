"""A worker that waits for a global step: how long, and what ends the wait."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from fastsup import train
from fastsup.cluster.job_completion import JobCompletionWatcher, mark_task_ended
from fastsup.experiment.training import WaitForStepHook

v1 = tf.compat.v1


class Worker:
    """A session with a hook that waits for step 100, while others make a step whenever it sleeps."""

    def __init__(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps_per_sleep: int, limit_secs: float
    ) -> None:
        self.step = v1.train.get_or_create_global_step()
        self.train_op = self.step.assign_add(1)
        self.at_sleep: Any = lambda: None
        self.sleeps = 0
        by_others = self.step.assign_add(steps_per_sleep)
        hook = WaitForStepHook(100, JobCompletionWatcher(tmp_path), limit_secs)
        self.session = train.MonitoredSession(hooks=[hook], handle_signals=True)
        now = float(int(time.monotonic()))  # So that halves of a second add up exactly.

        def sleep(secs: float) -> None:
            nonlocal now
            now += secs
            self.sleeps += 1
            self.at_sleep()
            self.session.raw_session().run(by_others)

        monkeypatch.setattr(time, "sleep", sleep)
        monkeypatch.setattr(time, "monotonic", lambda: now)

    def run(self) -> int:
        self.session.run(self.train_op)
        return int(self.session.raw_session().run(self.step))


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, graph: Any) -> Any:
    return lambda steps_per_sleep=10, limit_secs=60: Worker(tmp_path, monkeypatch, steps_per_sleep, limit_secs)


def test_it_waits_for_the_step_and_trains(worker: Any) -> None:
    made = worker()
    with made.session:
        assert made.run() == 101
        assert made.run() == 102
        assert made.sleeps == 10
        assert not made.session.should_stop()


def test_it_ends_when_training_has(worker: Any, tmp_path: Path, tf_log: Any) -> None:
    made = worker()
    made.at_sleep = lambda: mark_task_ended(str(tmp_path), "chief", 0)
    with made.session:
        made.run()
        assert made.session.should_stop()
    assert made.sleeps == 1
    assert "Training ended at step 10: this worker also ends." in tf_log.messages


def test_it_fails_when_nobody_makes_a_step(worker: Any) -> None:
    made = worker(steps_per_sleep=0)
    with (
        pytest.raises(tf.errors.DeadlineExceededError, match="was 0 for 60 s, while this worker waited"),
        made.session,
    ):
        made.run()
    assert made.sleeps == 120


def test_steps_of_others_put_the_limit_off(worker: Any) -> None:
    made = worker(steps_per_sleep=1, limit_secs=1)
    with made.session:
        assert made.run() == 101


def test_a_signal_ends_the_wait(worker: Any) -> None:
    made = worker(steps_per_sleep=0)
    # A second one would end the tests.
    made.at_sleep = lambda: signal.raise_signal(signal.SIGTERM) if made.sleeps == 1 else None
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    with pytest.raises(SystemExit) as ended, made.session:
        made.run()
    assert ended.value.code == 143
    assert made.sleeps == 1
