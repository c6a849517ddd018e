"""The bridge is opened where it was tried and has passed its self-test, and nowhere else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from fastsup.eager import bridge

pytestmark = pytest.mark.timeout(180)


def run(program: str, **environment: str) -> str:
    """Runs a program in a process of its own, and gives what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "fastsup"


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replaces the interpreter of the self-test by a shell script, which notes its calls."""

    def replace(script: str) -> Path:
        place, calls = tmp_path / "python", tmp_path / "calls"
        place.write_text(f"#!/bin/sh\necho called >> {calls}\n{script}\n")
        place.chmod(0o755)
        monkeypatch.setattr(bridge.sys, "executable", str(place))
        return calls

    return replace


def test_the_self_test_passes() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fastsup.eager.self_test"], capture_output=True, text=True, timeout=150, check=False
    )
    assert (done.returncode, done.stdout) == (0, bridge.SELF_TEST_PASSED + "\n"), done.stderr


def test_an_unknown_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge.versions, "__version__", "2.99.1")
    assert bridge._why_unknown().startswith("TensorFlow 2.99.1 isn't one of the versions that were tried: 2.16, 2.17")


def test_an_unknown_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge.platform, "machine", lambda: "riscv64")
    assert "not on linux for riscv64" in bridge._why_unknown()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'no symbol' >&2; exit 1", "the self-test has failed (exit code 1): no symbol"),
        ("kill -SEGV $$", "the self-test has failed (exit code -11)"),
        ("exit 0", "the self-test has failed (exit code 0)"),
    ],
)
def test_a_self_test_that_fails(cache: Path, python: Any, script: str, reason: str) -> None:
    calls = python(script)
    assert bridge._why_self_test_failed() == reason
    assert bridge._why_self_test_failed() == reason
    assert calls.read_text() == "called\n"
    # What has failed yesterday is tried again.
    (outcome,) = cache.iterdir()
    os.utime(outcome, (0, 0))
    assert bridge._why_self_test_failed() == reason
    assert calls.read_text() == "called\n" * 2


def test_a_self_test_that_passes_is_kept(cache: Path, python: Any) -> None:
    calls = python(f'echo "{bridge.SELF_TEST_PASSED}"')
    assert bridge._why_self_test_failed() == ""
    (outcome,) = cache.iterdir()
    os.utime(outcome, (0, 0))
    assert bridge._why_self_test_failed() == ""
    assert calls.read_text() == "called\n"
    outcome.write_text("{")
    assert bridge._why_self_test_failed() == ""
    assert calls.read_text() == "called\n" * 2
    assert json.loads(outcome.read_text()) == {"outcome": ""}


def test_a_self_test_that_hangs(cache: Path, python: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "SELF_TEST_SECS", 0.2)
    calls = python("exec sleep 60")
    assert bridge._why_self_test_failed() == "the self-test hasn't ended within 0.2 seconds"
    bridge._why_self_test_failed()
    assert calls.read_text() == "called\n" * 2


def test_another_build_is_tested_anew(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = bridge._outcome_file()
    assert here.parent == cache
    monkeypatch.setattr(bridge.versions, "__git_version__", "another")
    assert bridge._outcome_file() != here


def test_a_cache_that_cannot_be_written(tmp_path: Path, python: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    python(f'echo "{bridge.SELF_TEST_PASSED}"')
    assert bridge._why_self_test_failed() == ""


def test_where_the_bridge_stays_closed() -> None:
    program = """
        import tensorflow as tf

        import fastsup

        (cpu,) = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
        v = tf.Variable(1.0)
        step = fastsup.function(lambda: v.assign_add(1.0), fallback="silent")
        print([float(step()) for _ in range(3)], step.lifted, step.why_not)
    """
    printed = run(program)
    assert printed.startswith("[2.0, 3.0, 4.0] False the eager context has 2 devices (/device:CPU:0, /device:CPU:1)")


def test_a_context_that_is_replaced() -> None:
    program = """
        import tensorflow as tf
        from tensorflow.python.eager import context

        import fastsup

        step = fastsup.function(lambda x: x + 1.0, fallback="raise")
        step(tf.ones([]))
        assert step.lifted
        context._reset_context()
        step = fastsup.function(lambda x: x + 1.0, fallback="silent")
        print(float(step(tf.ones([]))), step.lifted)
    """
    assert run(program) == "2.0 False\n"
