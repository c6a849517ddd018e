"""The mark of tests that only a long run of faults takes."""

from __future__ import annotations

import os

import pytest

__all__ = ["LONG", "long_only"]

LONG = os.environ.get("FASTSUP_FAULTS") == "long"
long_only = pytest.mark.skipif(not LONG, reason="takes long: FASTSUP_FAULTS=long runs it")
