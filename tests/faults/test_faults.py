"""What is left of a training whose file operations fail, and the order in which a checkpoint becomes durable."""

from __future__ import annotations

import errno
import itertools
from typing import Any

import pytest
from durability_checks import check_order
from ways_to_save import WAYS

# From the first to the last operation that fails: the first alone, or all.
ONCE, ALWAYS = "1,1", "1,0"
STATE_FILE, ANY = "/checkpoint", "/"

pytestmark = [pytest.mark.one_world]


FAULTS = {
    "the state file can't be renamed": ("rename", STATE_FILE, ALWAYS, errno.EHOSTDOWN),
    "the state file is stale once": ("rename", STATE_FILE, ONCE, errno.ESTALE),
    "the state file can't be read once": ("open", STATE_FILE, ONCE, errno.EIO),
    "the state file can't be read": ("open", STATE_FILE, ALWAYS, errno.EACCES),
    "the directory can't be listed once": ("list", ANY, ONCE, errno.EMFILE),
    "the directory can't be listed": ("list", ANY, ALWAYS, errno.EIO),
    "access is denied once": ("access", ANY, ONCE, errno.EACCES),
    "access is denied": ("access", ANY, ALWAYS, errno.EACCES),
    "stat fails once": ("stat", ANY, ONCE, errno.EIO),
    "an index can't be opened once": ("open", ".index", ONCE, errno.EMFILE),
    "an index can't be opened": ("open", ".index", ALWAYS, errno.EMFILE),
    "the disk is full": ("create", "tempstate", ALWAYS, errno.ENOSPC),
    "the disk is full for the state file": ("create", ".fastsup", ONCE, errno.ENOSPC),
    "the disk fails": ("fsync", "ckpt-1", ALWAYS, errno.EIO),
    "a checkpoint can't be renamed": ("rename", "ckpt-1", ALWAYS, errno.EHOSTDOWN),
}


@pytest.mark.parametrize("way", ["session", "step_loop"])
def test_no_fault_costs_what_was_saved(faults: Any, way: str) -> None:
    """A training that goes on from step 12 under a fault ends at step 20, or with an error; and goes on without."""
    lines = [f"{operation},{part},{which},error {number}" for operation, part, which, number in FAULTS.values()]
    results = dict(zip(FAULTS, faults.run("each_fault", way, [[line] for line in lines]), strict=True))
    for name, (under_fault, (step, weight), ended_later, (last_step, last_weight)) in results.items():
        assert step == weight, name
        assert step == 20 if under_fault == "ended" else 12 <= step < 20, name
        assert "OutOfRange" not in under_fault, name
        assert (ended_later, last_weight) == ("ended", last_step), name
        # A session that is stopped at a step runs another one, as TensorFlow's does.
        assert last_step in (20, 21), name
    for name in (
        "the disk is full",
        "the disk fails",
        "a checkpoint can't be renamed",
        "the state file can't be renamed",
    ):
        assert results[name][0] != "ended", name


# A folder of a Checkpoints is named by its rename, and by no state file: test_power_loss.py has its order.
@pytest.mark.parametrize("way", [way for way in WAYS if not way.endswith("checkpoints")])
def test_order_and_a_limit(faults: Any, way: str) -> None:
    """A checkpoint is on the disk before it is named, and named there before older ones are deleted.

    And a file that is too large isn't the end of the input.
    """
    without, (ended, left, ended_later, state) = faults.run("without_and_with_a_limit", way)
    assert without == ["ended", [12, 12.0], "ended", without[3]]
    operations = itertools.takewhile(lambda operation: operation.path != "marker", faults.operations())
    assert check_order(operations, str(faults.folder)) >= 5

    assert ended.startswith("ResourceExhaustedError")
    assert "File too large" in ended
    assert left == []  # Of the room that it needs, it takes none.
    assert (ended_later, state) == ("ended", [12, 12.0])
