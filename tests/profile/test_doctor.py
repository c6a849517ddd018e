"""`python -m fastsup doctor`, as a user runs it."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from fastsup.__main__ import main
from fastsup.common.absent_names import install_command
from fastsup.eager import tf_abi
from fastsup.profile import doctor

pytestmark = pytest.mark.one_world

MIXED = """
import fastsup.train as train
with tf.Graph().as_default():
    step = v1.assign_add(v1.train.get_or_create_global_step(), 1)
    hooks = [v1.train.StopAtStepHook(last_step=20)]
    with train.MonitoredTrainingSession(hooks=hooks, executor="inline") as session:
        while not session.should_stop():
            session.run(step)
import sys
sys.exit(3)
"""

FUNCTIONS = """
import tensorflow as tf
import fastsup

def main():
    @fastsup.function
    def step(x):
        return x + 1.0

    @fastsup.function(executor="inline")
    def inline(x):
        return x * 2.0

    @fastsup.function(fallback="silent")
    def anew():
        return tf.compat.v1.get_default_graph().capture_call_time_value(lambda: tf.constant(1.0), tf.TensorSpec([])) * 2

    for value in (1.0, tf.constant(1.0), tf.ones([2])):
        step(value)
    inline(1.0)
    anew()

main()
"""


def test_doctor(run: Any) -> None:
    result = run("doctor", env={"TF_CPP_VMODULE": "executor=1"})
    assert "tf.compat.v1.layers" in result.stdout
    assert result.returncode == 0, result.stderr
    assert "StepLoop around a step that does nothing: " in result.stdout
    for executor in ("auto", "thread_pool", "inline", "single_threaded"):
        assert f"\n  {executor} " in result.stdout
    assert "(has chosen single_threaded)" in result.stdout
    assert "The floor of this machine is about " in result.stdout
    assert re.search(r"a function of that step: tf.function .*, fastsup.function .* \(\w+\)\n", result.stdout)
    assert "! TF_CPP_VMODULE=executor=1: TensorFlow logs in every step. Unset it." in result.stdout


@pytest.mark.parametrize(
    ("version", "value", "says"),
    [
        (None, None, f"not available. To use them: `{install_command()}`, and set the environment"),
        (None, "1", f"not available. To use them: `{install_command()}`."),
        ("2.21.0", "0", "not available. To use them: set the environment variable TF_USE_LEGACY_KERAS=1"),
        ("2.21.0", "True", "available (tf_keras)"),
    ],
)
def test_doctor_says_whether_the_layers_of_keras_2_can_be_used(
    monkeypatch: pytest.MonkeyPatch, version: str | None, value: str | None, says: str
) -> None:
    monkeypatch.setattr(doctor, "version_of", {"tf_keras": version}.get)
    if value is None:
        monkeypatch.delenv("TF_USE_LEGACY_KERAS", raising=False)
    else:
        monkeypatch.setenv("TF_USE_LEGACY_KERAS", value)
    assert f"tf.compat.v1.layers and tf.compat.v1.nn.rnn_cell: {says}" in doctor.layers_of_keras_2()


def test_doctor_says_why_functions_cannot_be_lifted(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(tf_abi, "unavailable_reason", lambda: "TensorFlow 3.0 isn't one of the tested versions")
    doctor._print_functions()
    assert capsys.readouterr().out == (
        "fastsup.function and fastsup.keras: TensorFlow runs all functions, because TensorFlow 3.0 isn't one of the "
        "tested versions.\n"
    )


def test_doctor_without_tensorflow(tmp_path: Path, run: Any) -> None:
    (tmp_path / "tensorflow.py").write_text("raise ImportError('none here')\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    result = run("doctor", env={"PYTHONPATH": path}, fresh=True)
    assert result.returncode == 1
    assert "No sessions: " in result.stdout


def test_doctor_says_how_tensorflow_is_installed(tmp_path: Path, run: Any) -> None:
    (tmp_path / "tensorflow.py").write_text("raise ModuleNotFoundError('none here', name='tensorflow')\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    result = run("doctor", env={"PYTHONPATH": path}, fresh=True)
    assert result.returncode == 1
    assert "No sessions: " in result.stdout
    assert "Install it with one of fastsup's extras: pip install 'fastsup[cpu]'" in result.stdout


def test_doctor_knows_what_is_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"tensorflow": "2.21.0", "tensorflow-cpu": "2.21.0", "tensorflow-estimator": "2.14.0"}
    monkeypatch.setattr(doctor, "version_of", versions.get)
    monkeypatch.setattr(doctor, "cores", lambda: 1)
    monkeypatch.setattr(doctor, "_governor", lambda: "powersave")
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    monkeypatch.setenv("PYTHONMALLOC", "debug")
    said = "\n".join(doctor.warnings())
    for text in (
        "tensorflow and tensorflow-cpu are both installed",
        "tensorflow-estimator 2.14.0 can't be imported",
        "Only one core",
        "governor is powersave",
        "CUDA_LAUNCH_BLOCKING",
        "debugging memory allocator",
    ):
        assert text in said


@pytest.mark.parametrize("version", ["2.15.1", "2.21.0"])
def test_doctor_finds_nothing_where_there_is_nothing(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "version_of", {"tensorflow": version, "tensorflow-estimator": "2.15.0"}.get)
    monkeypatch.setattr(doctor, "cores", lambda: 8)
    monkeypatch.setattr(doctor, "_governor", lambda: "performance")
    monkeypatch.setattr(sys, "gettrace", lambda: None)
    monkeypatch.setattr(sys, "getprofile", lambda: None)
    for name in ("CUDA_LAUNCH_BLOCKING", "PYTHONMALLOC", "TF_CPP_VMODULE", "TF_CPP_MAX_VLOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    assert doctor.warnings() == []


def test_doctor_of_a_script(tmp_path: Path, run: Any, tensorflow_only: str) -> None:
    path = tmp_path / "mixed.py"
    path.write_text(tensorflow_only + MIXED)
    result = run("doctor", path)
    assert result.returncode == 3, result.stderr
    said = " ".join(result.stdout.split())
    assert "MonitoredTrainingSession (train), mixed.py:14: 20 runs" in said
    assert "executor: inline" in said
    assert "! MonitoredTrainingSession in mixed.py:6 is TensorFlow's: fastsup.train.MonitoredTrainingSession" in said
    assert (
        "! The hook StopAtStepHook of MonitoredTrainingSession (train), mixed.py:14 is TensorFlow's, and called" in said
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["doctor", "missing.py"], "the script can't be read: "),
        (["doctor", "-m", "no_such_module"], "the script can't be read: there is no module no_such_module"),
        (["doctor", "-m"], "the following arguments are required: script"),
    ],
)
def test_doctor_of_what_is_no_script(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2
    assert text in capsys.readouterr().err


def test_a_script_that_calls_functions(tmp_path: Path, run: Any) -> None:
    """They are listed also if they are gone when the script ends."""
    path = tmp_path / "functions.py"
    path.write_text(FUNCTIONS)
    result = run("doctor", path)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    first = lines.index("functions of fastsup.function")
    assert lines[first + 1 : first + 4] == [
        "  step: lifted, single_threaded (3 ConcreteFunctions)",
        "  inline: lifted, inline",
        "  anew: not lifted: it captures values that are recomputed in each call",
    ]
    assert "No step" not in result.stdout
