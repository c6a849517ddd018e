"""The lifecycle table: lifecycle.json says which callbacks each end of a run leads to, in TensorFlow and here."""

from __future__ import annotations

import collections
import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "lifecycle_programs", Path(__file__).with_name("lifecycle_programs.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


programs = load()
# These end the process.
IN_A_PROCESS = [("sigterm", "tensorflow")]
CASES = [
    pytest.param(row, name, id=f"{row['program']}-{name}")
    for row in programs.TABLE
    for name in ("tensorflow", "fastsup")
    if programs.expected(row, name) is not None
]


def newest_step(folder: Path) -> int | None:
    import tensorflow as tf

    newest = tf.train.latest_checkpoint(str(folder))
    return None if newest is None else int(newest.rpartition("-")[2])


@pytest.mark.parametrize(("row", "name"), CASES)
def test_row(row: dict[str, Any], name: str, tmp_path: Path) -> None:
    if (row["program"], name) in IN_A_PROCESS:
        command = [sys.executable, programs.__file__, name, row["program"], str(tmp_path)]
        done = subprocess.run(
            command,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        calls = done.stdout.split("\n")
        lefts = [line.removeprefix("left by ") for line in calls if line.startswith("left by ")]
        left = lefts[0] if lefts else f"dies of {signal.Signals(-done.returncode).name}"
    else:
        calls = []
        left = programs.run(name, row["program"], str(tmp_path), calls.append)
    counts = collections.Counter(calls)
    found = {column: counts[column] for column in programs.COLUMNS[:7]}
    assert {**found, "saved": newest_step(tmp_path), "leaves": left} == programs.expected(row, name)


def test_every_program_has_a_row() -> None:
    assert len({row["program"] for row in programs.TABLE}) == len(programs.TABLE)
    for row in programs.TABLE:
        assert set(row) == {"ending", "program", "tensorflow", *programs.COLUMNS}
        assert callable(getattr(programs.Program, row["program"]))


def test_the_page_has_the_table() -> None:
    assert programs.PAGE.read_text() == programs.page(programs.PAGE.read_text())
