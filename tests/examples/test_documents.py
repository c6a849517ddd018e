"""The programs in README.md and docs/, each as its reader runs it: in its own process and folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from processes import Processes

ROOT = Path(__file__).parents[2]
PROGRAMS = [
    pytest.param(match[1], id=f"{document.name}-{number}")
    for document in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    for number, match in enumerate(
        re.finditer(r"^```python\n(.*?)^```", document.read_text(), re.DOTALL | re.MULTILINE)
    )
]


DOCUMENTS = [ROOT / "Makefile", ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")),
             *sorted((ROOT / "examples").rglob("*.md"))]  # fmt: skip


def installations() -> dict[str, list[str]]:
    """The arguments of each command of the documents that installs the sources."""
    found = {}
    for document in DOCUMENTS:
        for number, text in enumerate(document.read_text().split("pip install ")[1:]):
            words = re.split("[\n`#&;]", text)[0].replace('"', "").replace("'", "").split()
            if any(re.fullmatch(r"\.[./]*(\[.*\])?", word) for word in words):
                found[f"{document.relative_to(ROOT)}-{number}"] = words
    return found


def test_the_sources_are_installed_in_place() -> None:
    """Python, started in the clone, finds the sources first: it would say that they aren't compiled."""
    found = installations()
    assert {"Makefile-0", "README.md-0", "README.md-2", "docs/index.md-1"} <= set(found)
    assert {name: words for name, words in found.items() if "-e" not in words} == {}


def test_there_are_programs() -> None:
    assert {"loop.md-0", "hooks.md-0"} <= {program.id for program in PROGRAMS}


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_runs(tmp_path: Path, program: str, processes: Processes, environment: dict[str, str]) -> None:
    result = processes.python("-c", program, cwd=tmp_path, env=environment)
    assert result.returncode == 0, result.stderr
