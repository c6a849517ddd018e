"""The tutorials, followed step by step: their files are written, their commands run, and their output compared."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from processes import Processes

TUTORIALS = sorted((Path(__file__).parents[2] / "docs").glob("tutorial-*.md"))
BLOCK = re.compile(r'^```(?:\w+ title="(?P<file>[^"]+)"|console)\n(?P<text>.*?)^```', re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"\d[\d.,]*(?:ns|µs|ms|s|%| x)?")

pytestmark = [pytest.mark.one_world, pytest.mark.timeout(300)]


def without_numbers(text: str) -> str:
    return " ".join(NUMBER.sub("#", text).split())


def test_there_are_tutorials() -> None:
    assert [path.stem for path in TUTORIALS] == ["tutorial-embedding", "tutorial-estimator", "tutorial-keras"]


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_following_it(tutorial: Path, tmp_path: Path, processes: Processes, environment: dict[str, str]) -> None:
    commands = 0
    for block in BLOCK.finditer(tutorial.read_text()):
        if block["file"]:
            (tmp_path / block["file"]).write_text(block["text"])
            continue
        printed: list[str] = []
        for line in block["text"].splitlines():
            if not line.startswith("$ "):
                assert without_numbers(line) in printed, f"{line!r} isn't in the output: {printed}"
                continue
            program, *arguments = shlex.split(line[2:])
            if program == "rm":
                assert processes.run("rm", *arguments, cwd=tmp_path).returncode == 0
                continue
            assert program == "python"
            done = processes.python(*arguments, cwd=tmp_path, env={**environment, "COLUMNS": "80"})
            assert done.returncode == 0, done.stderr
            printed = [without_numbers(shown) for shown in done.stdout.splitlines()]
            commands += 1
    assert commands >= 3
