"""What becomes of a training of which any one file operation fails, or all from one on."""

from __future__ import annotations

import errno
import re
from typing import Any

import pytest
from long_faults import LONG
from ways_to_save import WAYS

ERRORS = ("EIO", "ENOSPC", "EMFILE", "EACCES", "EINTR", "ESTALE", "EHOSTDOWN", "EDQUOT", "EROFS")
# Python itself tries again for as long as a call is interrupted (PEP 475), so that one which always is never ends.
ONLY_ONCE = "EINTR"
# From which step a training goes on, the error, and whether all operations from the first on fail.
FAULTS = (
    [
        (start, name, lasting)
        for start in (0, 12)
        for name in ERRORS
        for lasting in (False, True)
        if not (lasting and name == ONLY_ONCE)
    ]
    if LONG
    else [(0, "EIO", False), (12, "ENOSPC", True)]
)
# Of the operations, one in so many fails: in a short run, and in a long one of the ways that take long.
SHORT = 97
SLOW = {"estimator_train": 61, "train_and_evaluate": 601}
LONG_SLOW = {"estimator_train": 3, "train_and_evaluate": 31}

pytestmark = [pytest.mark.one_world, pytest.mark.timeout(3600 if LONG else 180)]


@pytest.mark.parametrize(("start", "error", "lasting"), FAULTS)
@pytest.mark.parametrize("way", WAYS)
def test_any_operation_may_fail(
    faults: Any, way: str, start: int, error: str, lasting: bool, record_property: Any
) -> None:
    """A training, new or continued, ends at step 20, or with an error; and goes on without the fault."""
    first = 1 if LONG else 1 + 2 * list(WAYS).index(way)
    stride = LONG_SLOW.get(way, 1) if LONG else SLOW.get(way, SHORT)
    results = faults.each_operation(way, start, f"error {getattr(errno, error)}", lasting, first, stride)
    assert results
    record_property("faults", len(results))
    for failed, under_fault, (step, weight), ended_later, (last_step, last_weight) in results:
        about = f"{way}: {failed}: {under_fault}, step {step}; later {ended_later}, step {last_step}"
        assert step == weight, about
        # A session that is stopped at a step runs another one, as TensorFlow's does; one that is made again, too.
        assert step in (20, 21) if under_fault == "ended" else start <= (step or 0) <= 21, about
        assert "OutOfRange" not in under_fault, about
        assert under_fault != "crashed" or re.fullmatch(r"read \S+\.index", failed), about
        assert (ended_later, last_weight, last_step - max(step or 0, 20) in (0, 1)) == ("ended", last_step, True), about


@pytest.mark.parametrize("way", WAYS)
def test_short_and_late_operations_change_nothing(faults: Any, way: str) -> None:
    """Each read and write moves half of its data; each operation takes a millisecond more."""
    short, late = ["read,/,1,0,short", "write,/,1,0,short"], ["any,/,1,0,delay 1"]
    for under_fault, (step, weight), _, _ in faults.run("each_fault", way, [short, late]):
        assert under_fault == "ended"
        assert step == weight
        assert step in (20, 21)
    assert {operation for operation, _ in faults.failed()} >= {"read", "write", "fsync", "rename", "unlink"}
