"""What a training finds after the machine has lost power, at any of its file operations."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from lost_power import Crash, crashes
from ways_to_save import WAYS

LONG = os.environ.get("FASTSUP_FAULTS") == "long"
# Of the crashes in a short run, one in so many is checked; of those, one in so many is trained on.
SHORT, TRAINED = 11, 40
SLOW = {"estimator_train": 23, "train_and_evaluate": 151}

pytestmark = [pytest.mark.one_world, pytest.mark.timeout(1800 if LONG else 180)]


def laid_out(crash: Crash, folder: Path, blobs: dict[bytes, Path]) -> None:
    """Writes what a crash has left. The same content is one file of several names."""
    folder.mkdir()
    for path in crash.folders:
        (folder / path).mkdir()
    for path, content in crash.files.items():
        place = folder / path
        if content not in blobs:
            blobs[content] = folder.parent / f"content {len(blobs)}"
            blobs[content].write_bytes(content)
        os.link(blobs[content], place)


@pytest.mark.parametrize("way", WAYS)
def test_what_was_saved_is_there(faults: Any, tmp_path: Path, way: str, record_property: Any) -> None:
    """The state of one step is there, not older than the last save that has returned; and training goes on from it."""
    assert faults.run("two_trainings", way) == ["ended", "ended"]
    copies = {path.name: path.read_bytes() for path in faults.blobs.iterdir()}
    operations = faults.operations()
    found = list(crashes(operations, copies, str(faults.folder)))
    assert len(found) > 100
    checked = found if LONG else found[:: SLOW.get(way, SHORT)]
    record_property("crashes", len(checked))
    folders, blobs = tmp_path / "after", {}
    folders.mkdir()
    for number, crash in enumerate(checked):
        laid_out(crash, folders / str(number), blobs)
    after = faults.run("after_crashes", way, str(folders), len(checked), TRAINED)
    for crash, (restored, exported, ended, later) in zip(checked, after, strict=True):
        about = f"{way}, after operation {crash.at}, {operations[crash.at - 1]}: {sorted(crash.files)}"
        assert len(restored) == 2, f"{about}: {restored}"
        step, weight = restored
        assert (step or 0) >= crash.saved, about
        assert step == weight, about
        assert set(exported) <= {"whole"}, f"{about}: {exported}"
        assert exported or not crash.saved or way != "train_and_evaluate", about
        if later is not None:
            assert (ended, later[0] in (20, 21), later[0] == later[1]) == ("ended", True, True), f"{about}: {ended}"
