"""The profile as summaries, read as TensorBoard reads them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fastsup
from fastsup import train
from fastsup.profile.recording.recorder import ManualClock

accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def read(directory: Path) -> Any:
    """(scalars, texts): the points of each curve, and the versions of each text, in order."""
    found = accumulators.EventAccumulator(str(directory)).Reload()
    scalars = {tag: [(e.step, e.value) for e in found.Scalars(tag)] for tag in found.Tags()["scalars"]}
    # TensorBoard's text tab shows the tensors whose metadata name its plugin.
    assert all(found.SummaryMetadata(tag).plugin_data.plugin_name == "text" for tag in found.Tags()["tensors"])
    texts = {
        tag: [e.tensor_proto.string_val[0].decode() for e in found.Tensors(tag)] for tag in found.Tags()["tensors"]
    }
    return SimpleNamespace(scalars=scalars, texts=texts)


class Hook:
    """Stands for a hook."""


@pytest.fixture
def two_parts(tmp_path: Path) -> Any:
    """A point after ten steps of 8 µs, 5 of them the hook's; another after twenty of 4 µs, 1 of it the hook's."""
    clock = ManualClock()
    profiler, hook = fastsup.HookProfiler(clock=clock), Hook()
    profiler.register(hook)
    for steps, runtime, callback in ((10, 3000, 5000), (20, 3000, 1000)):
        for _ in range(steps):
            with profiler.step():
                with profiler.session_span("runtime"):
                    clock.advance(runtime)
                with profiler.span(hook, "after_run"):
                    clock.advance(callback)
        profiler.write_summaries(tmp_path / "logs")
    return SimpleNamespace(profiler=profiler, found=read(tmp_path / "logs"), directory=tmp_path / "logs")


def test_costs_are_those_of_the_steps_since_the_last_point(two_parts: Any) -> None:
    scalars = two_parts.found.scalars
    assert scalars["profile/us per step of hooks/Hook.after_run"] == [(10, 5.0), (30, 1.0)]
    assert scalars["profile/us per step/runtime"] == [(10, 3.0), (30, 3.0)]
    assert scalars["profile/us per step/hooks"] == [(10, 5.0), (30, 1.0)]
    assert scalars["profile/us per step/between steps"] == [(10, 0.0), (30, 0.0)]
    rates = scalars["profile/steps per second"]
    assert rates == [(10, pytest.approx(125_000)), (30, pytest.approx(250_000))]


def test_the_step_of_a_keras_program_is_the_runtime(tmp_path: Path) -> None:
    clock = ManualClock()
    profiler = fastsup.HookProfiler(clock=clock)
    with profiler.step():
        for phase, ns in (("train_function", 3000), ("wait for input", 500), ("setup", 200)):
            with profiler.session_span(phase):
                clock.advance(ns)
    profiler.write_summaries(tmp_path)
    scalars = read(tmp_path).scalars
    assert scalars["profile/us per step/runtime"] == [(1, 3.0)]
    assert scalars["profile/us per step/session"] == [(1, pytest.approx(0.7))]


def test_percentiles_are_those_of_all_steps(two_parts: Any) -> None:
    scalars = two_parts.found.scalars
    assert scalars["profile/step time in us/p50"] == [
        (10, pytest.approx(8.0, rel=0.02)),
        (30, pytest.approx(4.0, rel=0.02)),
    ]
    assert scalars["profile/step time in us/p99"] == [
        (10, pytest.approx(8.0, rel=0.02)),
        (30, pytest.approx(8.0, rel=0.02)),
    ]


def test_the_text_tab_has_the_table(two_parts: Any) -> None:
    last = two_parts.found.texts["profile/table"][-1]
    assert last == "\n".join(f"    {line}" for line in two_parts.profiler.table().splitlines())
    assert "Hook" in last


def test_nothing_is_written_without_a_new_step(two_parts: Any) -> None:
    two_parts.profiler.write_summaries(two_parts.directory)
    again = read(two_parts.directory)
    assert again.scalars == two_parts.found.scalars


def test_the_executors_of_a_session_are_in_the_text_tab(tmp_path: Path, program: Any) -> None:
    profiler = fastsup.HookProfiler()
    model = program()
    with train.MonitoredTrainingSession(
        hooks=[train.StopAtStepHook(50)], profiler=profiler, executor="inline"
    ) as session:
        while not session.should_stop():
            session.run(model.step)
    profiler.write_summaries(tmp_path)
    (table,) = read(tmp_path).texts["profile/executors"]
    assert "| inline |" in table
    assert model.step.name in table


SCRIPT = """
import tensorflow as tf
from fastsup import train
with tf.Graph().as_default():
    step = tf.compat.v1.train.get_or_create_global_step()
    train_op = tf.compat.v1.assign_add(step, 1)
    with train.MonitoredTrainingSession(hooks=[train.StopAtStepHook(20)]) as session:
        while not session.should_stop():
            session.run(train_op)
"""


def test_the_command_writes_them(tmp_path: Path, run: Any) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = run("profile", "--summaries", tmp_path / "logs", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1] == f"Written: {tmp_path / 'logs'}"
    scalars = read(tmp_path / "logs").scalars
    assert scalars["profile/step time in us/p50"][-1][0] == 20


def test_a_directory_that_cannot_be_made_is_refused_before_the_script_runs(tmp_path: Path, run: Any) -> None:
    script = tmp_path / "script.py"
    script.write_text("raise SystemExit('the script has run')")
    (tmp_path / "file").write_text("")
    done = run("profile", "--summaries", tmp_path / "file", script, fresh=True)
    assert done.returncode == 2
    assert "--summaries" in done.stderr
    assert "the script has run" not in done.stderr


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path, run: Any) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"{SCRIPT}\nimport resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n")
    done = run("profile", "--summaries", tmp_path / "logs", script, fresh=True)
    assert done.returncode == 2
    assert f"--summaries {tmp_path / 'logs'} could not be written: " in done.stderr
    assert "Written" not in done.stderr
    assert "20 steps in " in done.stdout
