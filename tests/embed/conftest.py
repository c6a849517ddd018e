"""Somebody else's extension modules, built outside the tree against the fastsup that this process has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import fastsup

PROJECT = Path(__file__).parent / "project"
EXAMPLE = Path(__file__).parents[2] / "examples" / "embedding"


def environment(*folders: Path) -> dict[str, str]:
    """A process's environment in which fastsup and what lies in the folders can be imported."""
    paths = [*map(str, folders), str(Path(fastsup.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def completed(command: Sequence[str], folder: Path, *folders: Path) -> str:
    """What a command has printed. It must succeed and complain of nothing."""
    result = subprocess.run(
        command, cwd=folder, env=environment(*folders), capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr == ""
    return result.stdout


def build(source: Path, folder: Path) -> Path:
    """Builds a project's modules in a copy of it."""
    shutil.copytree(source, folder)
    completed([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], folder)
    return folder


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(PROJECT, tmp_path_factory.mktemp("embed") / "project")


@pytest.fixture(scope="session")
def built_example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(EXAMPLE, tmp_path_factory.mktemp("embed") / "example")


@pytest.fixture
def in_fresh_process(built: Path, tmp_path: Path) -> Callable[[str], str]:
    """Runs a program that imports these modules, and gives back what it printed."""
    return lambda program: completed([sys.executable, "-c", program], tmp_path, built)
