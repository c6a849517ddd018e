"""A second save at a step that has a checkpoint: what a training finds after the machine has lost power."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from durability_checks import laid_out_crashes, problems_after_crashes
from long_faults import LONG
from overwriting_saves import OVERWRITING

# Of the crashes in a short run, one in so many is checked.
SHORT = 11

pytestmark = [pytest.mark.one_world, pytest.mark.timeout(1800 if LONG else 180)]


@pytest.mark.parametrize("way", OVERWRITING)
def test_what_was_saved_is_there(faults: Any, tmp_path: Path, way: str, record_property: Any) -> None:
    """The state of one save is there, not older than the last one that has returned; and the next save replaces it."""
    assert faults.run("saves_of_one_step", way) == [12, 3.0]
    which = slice(None, None, 1 if LONG else SHORT)
    checked, problems = problems_after_crashes(faults, tmp_path, way, which, of_one_step=True)
    record_property("crashes", checked)
    assert "\n".join(problems) == ""


def test_the_input_is_there(faults: Any, tmp_path: Path) -> None:
    """An input that has ended has ended after a crash, too: training doesn't begin it again, nor fail."""
    faults.run("inputs_of_one_step")
    which = slice(None, None, 1 if LONG else 10)
    checked, folders = laid_out_crashes(faults, tmp_path, which, with_file="input.ckpt-00000000000000000012")
    assert len(checked) > 10
    last_steps = faults.run("after_crashes_of_inputs", str(folders), len(checked))
    assert [(crash.at, step) for crash, step in zip(checked, last_steps, strict=True) if step != 12] == []
