"""The environment of programs that are run as their users run them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import fastsup


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """This process's, in which a program in any folder imports the fastsup that this process has."""
    places = (str(Path(fastsup.__file__).parents[1]), os.environ.get("PYTHONPATH"))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}
