"""The lifecycle table: lifecycle.json says which callbacks each end of a run leads to, in TensorFlow and here."""

from __future__ import annotations

import collections
import importlib.util
import signal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from processes import Processes


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
CASES = [
    pytest.param(row, name, id=f"{row['program']}-{name}")
    for row in programs.TABLE
    for name in ("tensorflow", "fastsup")
    if programs.expected(row, name) is not None and (row["program"], name) != ("sigterm", "tensorflow")
]


def newest_step(folder: Path) -> int | None:
    import tensorflow as tf

    newest = tf.train.latest_checkpoint(str(folder))
    return None if newest is None else int(newest.rpartition("-")[2])


def found(calls: list[str], folder: Path, left: str) -> dict[str, Any]:
    """The columns of a row."""
    counts = collections.Counter(calls)
    return {**{column: counts[column] for column in programs.COLUMNS[:7]}, "saved": newest_step(folder), "leaves": left}


@pytest.mark.slow
@pytest.mark.parametrize(("row", "name"), CASES)
def test_row(row: dict[str, Any], name: str, tmp_path: Path) -> None:
    calls: list[str] = []
    left = programs.run(name, row["program"], str(tmp_path), calls.append)
    assert found(calls, tmp_path, left) == programs.expected(row, name)


def test_row_of_a_program_that_dies(tmp_path: Path, processes: Processes) -> None:
    (row,) = (row for row in programs.TABLE if row["program"] == "sigterm")
    done = processes.python(programs.__file__, "tensorflow", "sigterm", tmp_path)
    left = f"dies of {signal.Signals(-done.returncode).name}"
    assert found(done.stdout.splitlines(), tmp_path, left) == programs.expected(row, "tensorflow")


def test_every_program_has_a_row() -> None:
    assert len({row["program"] for row in programs.TABLE}) == len(programs.TABLE)
    for row in programs.TABLE:
        assert set(row) == {"ending", "program", "tensorflow", *programs.COLUMNS}
        assert callable(getattr(programs.Program, row["program"]))


def test_the_page_has_the_table() -> None:
    assert programs.PAGE.read_text() == programs.page(programs.PAGE.read_text())
