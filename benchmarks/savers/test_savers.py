"""The harness finds nothing wrong with a careful saver, and the mistake of each that has one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.savers.checks import check
from benchmarks.savers.outcomes import CLASSES, after_power_loss, is_lost, is_unreported
from benchmarks.savers.registry import SAVERS, Saver
from benchmarks.savers.runs import Run, build_shim
from benchmarks.savers.table import HEADINGS, ordered_rows_of, rows_of

pytest_plugins = ["processes"]
# More than there are: each state and each operation is checked.
ALL = 1_000
# For each saver of programs/in_python.py, what there is besides "ok": after a loss of power on a disk that promises
# what POSIX does, the same where the order of changes is kept, and after operations that fail.
FOUND = {
    "careful": (set(), set(), set()),
    "unflushed": ({"from the beginning", "older", "error"}, {"from the beginning", "older", "error"}, set()),
    "in_place": ({"error"}, {"error"}, {"lost"}),
    "in_place_if_possible": ({"from the beginning"}, {"from the beginning"}, {"lost"}),
    "silent": (set(), set(), {"lost", "unreported"}),
    "apart": ({"mixed"}, {"mixed"}, {"lost"}),
}


@pytest.mark.parametrize("name", FOUND)
def test_the_mistake_of_a_saver_is_found(name: str, processes: Any, tmp_path: Path) -> None:
    (place := tmp_path / "place").mkdir()

    def start(command: list[str], **settings: Any) -> Any:
        return processes.start(*command, **settings)

    saver = Saver(name, "", "in_python", name)
    result = check(saver, sys.executable, build_shim(tmp_path), place, ALL, ALL, start)
    posix, ordered, failing = result["power"]["posix"], result["power"]["ordered"], result["failing"]
    assert posix["checked"] == posix["made"] == sum(posix[outcome] for outcome in CLASSES) > 10
    assert failing["faults"] > 10
    found = (
        {outcome for outcome in CLASSES[1:] if posix[outcome]},
        {outcome for outcome in CLASSES[1:] if ordered[outcome]},
        {outcome for outcome in ("lost", "unreported") if failing[outcome]},
    )
    assert found == FOUND[name], result
    (row,), (ordered_row,) = rows_of({name: result}), ordered_rows_of({name: result})
    assert len(row) == len(HEADINGS)
    assert (row[0], row[1], ordered_row[1]) == (name, str(posix["checked"]), str(ordered["checked"]))


@pytest.mark.parametrize(
    ("started", "ended", "saved", "outcome"),
    [
        ([10, 10.0, 10.0], True, 10, "ok"),
        ([15, 15.0, 15.0], True, 10, "ok"),
        ([5, 5.0, 5.0], True, 10, "older"),
        ([0, 0.0, 0.0], True, 10, "from the beginning"),
        ([0, 0.0, 0.0], True, 0, "ok"),
        ([10, 5.0, 10.0], True, 10, "mixed"),
        ([10, 5.0, 5.0], True, 0, "mixed"),
        ([10, 10.0, 10.0], False, 10, "error"),
        (None, False, 10, "error"),
        (None, False, 0, "ok"),
    ],
)
def test_class_of_a_start(started: list[float] | None, ended: bool, saved: int, outcome: str) -> None:
    assert after_power_loss(Run(ended, "", started), saved) == outcome


def run(step: int, ended: bool = True) -> Run:
    return Run(ended, "", [step, step, step])


def test_what_a_fault_has_cost() -> None:
    assert not is_lost(run(10), run(20), 10, 20)
    assert is_lost(run(10), run(15), 10, 20)  # What has returned isn't there.
    assert is_lost(run(0), run(20), 10, 20)  # What was saved before was trained again.
    assert not is_lost(run(0, ended=False), run(10), 10, 10)  # It is still there, and there was an error.
    assert is_unreported(run(10), run(10), 20)
    assert not is_unreported(run(10, ended=False), run(10), 20)
    assert not is_unreported(run(10), run(20), 20)


def test_rows_have_names_of_their_own() -> None:
    assert len({saver.title for saver in SAVERS}) == len({saver.program for saver in SAVERS}) == len(SAVERS)


def test_a_saver_that_could_not_be_checked_has_a_row() -> None:
    (row,) = rows_of({"a saver": {"failed": "it isn't installed"}})
    assert row[:2] == ["a saver", "it isn't installed"]
    assert len(row) == len(HEADINGS)
    assert ordered_rows_of({"a saver": {"failed": "it isn't installed"}}) == []
