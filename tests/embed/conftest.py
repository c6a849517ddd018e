"""Somebody else's extension modules, built outside the tree against the fastsup that this process has."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import Processes

import fastsup

PROJECT = Path(__file__).parent / "project"
EXAMPLE = Path(__file__).parents[2] / "examples" / "embedding"


def environment(*folders: Path) -> dict[str, str]:
    """A process's environment in which fastsup and what lies in the folders can be imported."""
    paths = [*map(str, folders), str(Path(fastsup.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def completed(processes: Processes, arguments: list[str], folder: Path, *folders: Path) -> str:
    """What Python has printed. It must succeed and complain of nothing."""
    result = processes.python(*arguments, cwd=folder, env=environment(*folders), fresh=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr == ""
    return result.stdout


def build(processes: Processes, source: Path, folder: Path) -> Path:
    """Builds a project's modules in a copy of it."""
    shutil.copytree(source, folder)
    completed(processes, ["setup.py", "-q", "build_ext", "--inplace"], folder)
    return folder


@pytest.fixture(scope="session")
def built(processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(processes, PROJECT, tmp_path_factory.mktemp("embed") / "project")


@pytest.fixture(scope="session")
def built_example(processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(processes, EXAMPLE, tmp_path_factory.mktemp("embed") / "example")


@pytest.fixture
def in_fresh_process(processes: Processes, built: Path, tmp_path: Path) -> Callable[[str], str]:
    """Runs a program that imports these modules, and gives back what it printed."""
    return lambda program: completed(processes, ["-c", program], tmp_path, built)
