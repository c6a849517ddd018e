"""The whole programs run on both sides, and every figure is there."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from benchmarks.whole_programs import PROGRAMS, programs_table, run_once


@pytest.mark.parametrize("side", ["tensorflow", "fastsup"])
@pytest.mark.parametrize("name", [program.name for program in PROGRAMS])
def test_a_short_run(name: str, side: str) -> None:
    felt = run_once(name, side, 60)
    assert all(value > 0 for value in asdict(felt).values())
    table = programs_table({name: {side: [felt]}})
    assert table.row_count == 1


def test_a_program_that_fails_says_so() -> None:
    with pytest.raises(RuntimeError, match="has failed with exit code 1: run it to see why"):
        run_once("no_such_program", "fastsup", 60)
