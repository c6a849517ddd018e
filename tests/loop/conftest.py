"""A clock that moves with the steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def stepping(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Callable[[], Any]]:
    """Makes a step function that takes so many seconds on its own clock, and returns its results in turn."""
    clock = 1000.0

    def make(secs: float = 1.0, results: Any = None) -> Callable[[], Any]:
        numbers = iter(results) if results is not None else None

        def step() -> Any:
            nonlocal clock
            result = None if numbers is None else next(numbers)
            clock += secs
            return result

        return step

    monkeypatch.setattr(time, "time", lambda: clock)
    return make
