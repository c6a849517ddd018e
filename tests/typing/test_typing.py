"""A type checker knows the types of the public names, and finds mistakes in their use."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from processes import Processes

import fastsup

pytest.importorskip("mypy")

CASES = Path(__file__).with_name("cases.py")
CONFIG = Path(__file__).parents[2] / "pyproject.toml"


def test_types(processes: Processes, tmp_path: Path) -> None:
    # mypy finds an installed package on its own, but not one that is installed in place.
    sources = Path(fastsup.__file__).parents[1]
    environment = {**os.environ, "MYPYPATH": str(sources)} if (sources / "pyproject.toml").exists() else None
    command = ("-m", "mypy", "--config-file", CONFIG, "--no-error-summary", CASES)
    # In a new interpreter: mypy doesn't import TensorFlow.
    done = processes.python(*command, fresh=True, timeout=170, cwd=tmp_path, env=environment)
    wanted = {
        number: line.split("# error: ")[1]
        for number, line in enumerate(CASES.read_text().splitlines(), 1)
        if "# error: " in line
    }
    found = {int(number): text for number, text in re.findall(r"cases\.py:(\d+): error: (.*)", done.stdout)}
    assert set(found) == set(wanted), done.stdout + done.stderr
    for number, text in wanted.items():
        assert text in found[number]
