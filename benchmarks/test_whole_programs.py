"""The whole programs run on both sides, and every figure is there."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest

from benchmarks.whole_programs import PROGRAMS, programs_table, run_once

pytest_plugins = ["processes"]
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(processes: Any) -> Start:
    """As `subprocess.Popen`, for Python."""
    return lambda command, **settings: processes.start_python(*command[1:], **settings)


@pytest.mark.parametrize("side", ["tensorflow", "fastsup"])
@pytest.mark.parametrize("name", [program.name for program in PROGRAMS])
def test_a_short_run(name: str, side: str, start: Start) -> None:
    felt = run_once(name, side, 60, start=start)
    assert all(value > 0 for value in asdict(felt).values())
    table = programs_table({name: {side: [felt]}})
    assert table.row_count == 1


def test_a_program_that_fails_says_so(start: Start) -> None:
    with pytest.raises(RuntimeError, match="has failed with exit code 1: run it to see why"):
        run_once("no_such_program", "fastsup", 60, start=start)
