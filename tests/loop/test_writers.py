"""Writers of numbers: what their files hold, also after a kill in the middle of a line."""

from __future__ import annotations

import contextlib
import csv
import json
import math
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import Processes

from fastsup.loop import Checkpoints, CsvWriter, JsonLinesWriter, StepLoop, SummaryHook, TensorBoardWriter


def write(writer: Any, name: str, value: float, step: int) -> None:
    """Writes a number, and closes the file."""
    writer.add_scalar(name, value, step)
    writer.close()


def rows_of(path: Path) -> list[tuple[int, str, Any]]:
    """The step, name and value of each line."""
    if path.suffix == ".csv":
        with path.open(newline="") as file:
            return [(int(row["step"]), row["name"], float(row["value"])) for row in csv.DictReader(file)]
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [(row["step"], row["name"], row["value"]) for row in rows]


WRITERS = [pytest.param(JsonLinesWriter, "x.jsonl", id="jsonl"), pytest.param(CsvWriter, "x.csv", id="csv")]


@pytest.mark.parametrize(("writer", "name"), WRITERS)
def test_a_line_for_each_number(tmp_path: Path, writer: Any, name: str) -> None:
    path = tmp_path / name
    numbers = writer(path)
    StepLoop(lambda: {"loss": 0.1, 'odd "na,me"\n': 2}, [SummaryHook(numbers, every_steps=2)], max_steps=5).run()
    expected = [(2, "loss", 0.1), (2, 'odd "na,me"\n', 2), (4, "loss", 0.1), (4, 'odd "na,me"\n', 2)]
    # Nothing waits for the file to be closed.
    assert rows_of(path) == expected
    numbers.close()
    write(writer(path), "loss", 3, 6)
    assert rows_of(path) == [*expected, (6, "loss", 3)]


@pytest.mark.parametrize(("writer", "name"), WRITERS)
@pytest.mark.parametrize("left", ["", "st", '4,0.5,"lo', "x" * 9000])
def test_an_unfinished_line_is_cut_off(tmp_path: Path, writer: Any, name: str, left: str) -> None:
    path = tmp_path / name
    write(writer(path), "loss", 1.0, 2)
    with path.open("a") as file:
        file.write(left)
    write(writer(path), "loss", 2.0, 4)
    assert rows_of(path) == [(2, "loss", 1.0), (4, "loss", 2.0)]
    if writer is CsvWriter and not "step,time,name,value".startswith(left):
        return  # The header comes first.
    path.write_text(left)
    write(writer(path), "loss", 2.0, 4)
    assert rows_of(path) == [(4, "loss", 2.0)]


def test_numbers_that_json_has_not(tmp_path: Path) -> None:
    writer = JsonLinesWriter(tmp_path / "x")
    for number in (math.nan, math.inf, -math.inf):
        writer.add_scalar("loss", number, 1)
    writer.close()
    assert [float(value) for _, _, value in rows_of(tmp_path / "x")[1:]] == [math.inf, -math.inf]
    assert rows_of(tmp_path / "x")[0] == (1, "loss", "nan")


@pytest.mark.parametrize(("writer", "name"), WRITERS)
def test_a_file_that_cannot_be_written_is_an_error_when_the_writer_is_made(
    tmp_path: Path, writer: Any, name: str
) -> None:
    writer(tmp_path / "new" / name).close()
    assert (tmp_path / "new" / name).exists()
    with pytest.raises(IsADirectoryError):
        writer(tmp_path)
    with pytest.raises(TypeError, match="not NoneType: path=None must be the path of a file"):
        writer(None)
    with pytest.raises(TypeError, match="not NoneType: directory=None must be the path of a directory"):
        TensorBoardWriter(None)  # type: ignore[arg-type]


TENSORBOARD = """
import sys
from fastsup.loop import StepLoop, SummaryHook, TensorBoardWriter

writer = TensorBoardWriter(sys.argv[1])
StepLoop(lambda: {"loss": 0.5, "b": 1}, [SummaryHook(writer, every_steps=2)], max_steps=4).run()
assert "tensorflow" not in sys.modules
import os
os._exit(0)  # Nothing waits for the end of the program.
"""


def test_tensorboard_reads_the_event_files(tmp_path: Path, processes: Processes) -> None:
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    processes.python("-c", TENSORBOARD, tmp_path / "logs", check=True, fresh=True)
    write(TensorBoardWriter(tmp_path / "logs"), "loss", 0.25, 6)
    events = accumulators.EventAccumulator(str(tmp_path / "logs"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(2, 0.5), (4, 0.5), (6, 0.25)]
    assert [(event.step, event.value) for event in events.Scalars("b")] == [(2, 1), (4, 1)]


def test_without_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.record_writer", None)
    with pytest.raises(ImportError, match=r"TensorBoardWriter needs the package tensorboard: pip install tensorboard"):
        TensorBoardWriter(tmp_path / "logs")
    assert not (tmp_path / "logs").exists()


@contextlib.contextmanager
def small_files() -> Iterator[None]:
    """Files don't grow beyond 4 kB, which ends a write in its middle as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(("kind", "name"), [*WRITERS, pytest.param(TensorBoardWriter, "", id="tensorboard")])
def test_a_failed_write_names_the_file(tmp_path: Path, kind: Any, name: str) -> None:
    writer = kind(tmp_path / name)
    with small_files(), pytest.raises(OSError, match=f"File too large: '{tmp_path}/") as caught:
        for step in range(1000):
            writer.add_scalar("loss", 1.0, step)
    (path,) = tmp_path.iterdir()
    assert caught.value.filename == str(path)
    writer.add_scalar("loss", 1.0, 1001)
    writer.close()


def test_a_failed_save_names_the_file(tmp_path: Path) -> None:
    saver = Checkpoints(tmp_path, {"state": {"array": np.zeros(10_000)}}, every_steps=1)
    with small_files(), pytest.raises(OSError, match=r"File too large: '.*/\.saving-.*'"):
        StepLoop(int, [saver], steps=1).run()
    assert not list(tmp_path.glob("*save-*"))


def test_a_table_with_other_columns_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("a,b\n1,2")
    with pytest.raises(ValueError, match=r"mine.csv' is a file with other content: .* Pass another path"):
        CsvWriter(path)
    assert path.read_text() == "a,b\n1,2"
