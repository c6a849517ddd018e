"""Fixtures of the tests of fastsup.profile: a small training program, and a profile by a manual clock."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from processes import Processes

from fastsup import HookProfiler
from fastsup.profile.recording.recorder import ManualClock

TENSORFLOW_ONLY = """
import tensorflow as tf
v1 = tf.compat.v1
with tf.Graph().as_default():
    step = v1.assign_add(v1.train.get_or_create_global_step(), 1)
    with v1.train.MonitoredTrainingSession(hooks=[v1.train.StopAtStepHook(last_step=3)]) as session:
        while not session.should_stop():
            session.run(step)
"""


class NamedHook:
    """Stands for a hook."""


class AnotherHookWithANameThatIsFarTooLongForItsColumn:
    """Stands for a hook, too."""


@pytest.fixture
def recorded() -> HookProfiler:
    """A profile of 100 steps of 10 microseconds, by a clock that stands still otherwise: two hooks of one class and one
    with a long name, a step of 5 milliseconds among the others, and 1 microsecond between two steps."""
    clock = ManualClock()
    profiler = HookProfiler(clock=clock)
    first, second, long_name = NamedHook(), NamedHook(), AnotherHookWithANameThatIsFarTooLongForItsColumn()
    for hook in (first, second, long_name):
        profiler.register(hook)
    for step in range(1, 101):
        with profiler.step():
            with profiler.span(first, "before_run"):
                clock.advance(500)
            with profiler.session_span("runtime"):
                clock.advance(4000)
            with profiler.span(second, "after_run"):
                clock.advance(2000)
                with profiler.span(second, "save"):
                    clock.advance(3000 if step != 42 else 4_993_000)
            with profiler.span(long_name, "after_run"):
                clock.advance(250)
            clock.advance(250)
        clock.advance(1000)
    return profiler


@pytest.fixture
def program(graph: Any) -> Callable[[], SimpleNamespace]:
    """Builds a small model in the default graph: `.step` (trains and counts), `.loss`."""
    import tensorflow as tf

    v1 = tf.compat.v1

    def build() -> SimpleNamespace:
        step = v1.train.get_or_create_global_step()
        weights = v1.get_variable("weights", [10], initializer=tf.ones_initializer(), use_resource=True)
        loss = tf.reduce_sum(weights * weights)
        v1.summary.scalar("loss", loss)
        train = v1.train.GradientDescentOptimizer(0.01).minimize(loss, global_step=step)
        return SimpleNamespace(step=train, loss=loss, global_step=step)

    return build


@pytest.fixture
def tensorflow_only() -> str:
    """A program that has a session of TensorFlow's alone."""
    return TENSORFLOW_ONLY


@pytest.fixture
def run(processes: Processes) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a command of `python -m fastsup` with arguments, and gives its exit code and what it has written."""

    def run_command(*arguments: Any, **settings: Any) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **settings.pop("env", {})}
        command = ("-m", "fastsup", *map(str, arguments))
        return processes.python(*command, encoding="utf-8", env=environment, **settings)

    return run_command
