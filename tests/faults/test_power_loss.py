"""What a training finds after the machine has lost power, at any of its file operations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from durability_checks import check_order, problems_after_crashes
from long_faults import LONG
from lost_power import crashes
from mutants import FOLDER_MUTANTS, MUTANTS
from ways_to_save import WAYS

# Of the crashes in a short run, one in so many is checked.
SHORT = 11
SLOW = {"estimator_train": 23, "train_and_evaluate": 151}

pytestmark = [pytest.mark.one_world, pytest.mark.timeout(1800 if LONG else 180)]


@pytest.mark.parametrize("way", WAYS)
def test_what_was_saved_is_there(faults: Any, tmp_path: Path, way: str, record_property: Any) -> None:
    """The state of one step is there, not older than the last save that has returned; and training goes on from it."""
    assert faults.run("two_trainings", way) == ["ended", "ended"]
    which = slice(None, None, 1 if LONG else SLOW.get(way, SHORT))
    checked, problems = problems_after_crashes(faults, tmp_path, way, which)
    record_property("crashes", checked)
    assert problems == []


@pytest.mark.parametrize("way", ["session", "supervisor", "step_loop", "train_and_evaluate"])
def test_a_new_directory_is_there(faults: Any, way: str) -> None:
    """The names of the directories that the training has made are on the disk when its first save has returned."""
    assert faults.run("two_trainings", way, "new/run") == ["ended", "ended"]
    copies = {path.name: path.read_bytes() for path in faults.blobs.iterdir()}
    left = [crash.files for crash in crashes(faults.operations(), copies, str(faults.folder)) if crash.saved]
    assert len(left) > 100
    assert [sorted(files) for files in left if "new/run/checkpoint" not in files] == []


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_save_that_is_not_durable_is_noticed(faults: Any, tmp_path: Path, mutant: str) -> None:
    """By what a crash leaves; or by the order of the operations, where a start finds its way nevertheless."""
    assert faults.run("two_trainings", "session", "", mutant) == ["ended", "ended"]
    try:
        check_order(faults.operations(), str(faults.folder))
    except AssertionError:
        return
    assert problems_after_crashes(faults, tmp_path, "session", slice(80), 1)[1]


@pytest.mark.parametrize("mutant", FOLDER_MUTANTS)
def test_a_folder_that_is_not_durable_is_noticed(faults: Any, tmp_path: Path, mutant: str) -> None:
    assert faults.run("two_trainings", "checkpoints", "", mutant) == ["ended", "ended"]
    assert problems_after_crashes(faults, tmp_path, "checkpoints", slice(None), 1000)[1]
