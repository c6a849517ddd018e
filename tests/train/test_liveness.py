"""A call that may never return, and a watch over something that may stand still."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from fastsup.common.liveness import LongCall, watch_progress


def test_a_call_that_takes_long() -> None:
    go_on = threading.Event()
    call = LongCall(lambda: go_on.wait(60), "waits")
    assert call.thread.daemon
    assert call.thread.name == "waits"
    assert not call.has_returned(0.01)
    go_on.set()
    assert call.has_returned(float("inf"))
    assert call.has_returned(0.0)


def test_a_call_that_fails() -> None:
    def fail() -> None:
        raise ValueError("planned")

    call = LongCall(fail, "fails")
    for _ in range(2):
        with pytest.raises(ValueError, match="planned"):
            call.has_returned(60)


def watched(progress: list[Any], ends: int | None = None) -> list[tuple[Any, int]]:
    """What stood still, and after how many looks, if the progress is this."""
    looks = 0
    still: list[tuple[Any, int]] = []

    def wait(secs: float) -> bool:
        nonlocal looks
        assert secs == 2.0
        looks += 1
        return looks == len(progress)

    def when_still(seen: Any) -> bool:
        still.append((seen, looks))
        return len(still) != ends

    watch_progress(wait, 8.0, lambda: progress[looks], when_still)
    return still


@pytest.mark.parametrize(
    ("progress", "still"),
    [
        ([1, 1, 1, 1], []),
        ([1, 1, 1, 1, 1], [(1, 4)]),
        ([1, 1, 1, 2, 2, 2, 2], []),
        ([1, 1, 1, 2, 2, 2, 2, 2], [(2, 7)]),
        ([1] * 13, [(1, 4), (1, 8), (1, 12)]),
        ([1, 1, None, 1, 1, 1, 1, 1, 1], []),
    ],
)
def test_what_stands_still(progress: list[Any], still: list[tuple[Any, int]]) -> None:
    assert watched(progress) == still


def test_a_watch_that_ends_itself() -> None:
    assert watched([1] * 13, ends=2) == [(1, 4), (1, 8)]
