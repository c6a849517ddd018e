"""The damage table of docs/recovery.md: measured, compared with the page, and what it promises beyond the page."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import pytest

_SPEC = importlib.util.spec_from_file_location(
    "damage_table", os.path.join(os.path.dirname(__file__), "damage_table.py")
)
assert _SPEC is not None
assert _SPEC.loader is not None
damage_table = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(damage_table)


@pytest.mark.slow
@pytest.mark.parametrize("damage", list(damage_table.DAMAGES))
def test_the_newest_intact_checkpoint_is_restored(both: Any, damage: str) -> None:
    tensorflow = [damage_table.measure(both.tensorflow, damage, mid_run) for mid_run in (False, True)]
    fastsup = [damage_table.measure(both.fastsup, damage, mid_run) for mid_run in (False, True)]
    for measured in fastsup:
        assert measured.outcome == f"step {damage_table.WANTED_STEP[damage]} restored"
        assert len(measured.warnings) == (damage not in damage_table.WITHOUT_WARNING), measured.warnings
        assert measured.lost == []
    assert damage_table.row(damage, tuple(tensorflow), tuple(fastsup)) in damage_table.rows_of_the_page()


def test_the_page_has_no_other_rows() -> None:
    assert [row.split(" | ")[0][2:] for row in damage_table.rows_of_the_page()] == list(damage_table.DAMAGES)


@pytest.mark.parametrize("damage", ["data file cut in half", "index missing", "one bit of the data flipped"])
def test_the_warning_names_path_and_cause(both: Any, damage: str) -> None:
    (warning,) = damage_table.measure(both.fastsup, damage, False).warnings
    cause = {
        "data file cut in half": "Read less bytes than requested",
        "index missing": "its index file is missing",
        "one bit of the data flipped": "Checksum does not match",
    }[damage]
    assert f"model.ckpt-{damage_table.NEWEST} can't be restored and is left unchanged: " in warning
    assert cause in warning
