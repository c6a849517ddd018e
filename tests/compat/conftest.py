"""The helpers of this folder, which is no package."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from processes import Processes


@pytest.fixture(scope="session")
def children(processes: Processes) -> Any:
    """Starts child processes: see children.py."""
    spec = importlib.util.spec_from_file_location("compat_children", Path(__file__).with_name("children.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Children(processes)
