"""The table of decisions in docs/internals.md: each row names places that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "internals.md").read_text()
TABLE = TEXT[TEXT.index("## Where a decision is made") :].partition("\n## ")[0]
ROWS = dict(line.strip("| ").split(" | ", 1) for line in TABLE.splitlines() if line.startswith("| ") and "`" in line)


def test_there_are_rows() -> None:
    assert len(ROWS) > 30


def faults_of(question: str) -> str:
    """What is wrong with the places of a row. The second file of a folder stands there without the folder."""
    names = re.findall(r"`([^`()]+)(?:\(\))?`", ROWS[question])
    files: list[Path] = []
    defined: list[str] = []
    for name in names:
        if name.endswith((".py", ".pyx", ".pxd", ".h")):
            files.append(ROOT / name if "/" in name else files[-1].parent / name)
        else:
            defined += name.split(".")
    absent = [str(path) for path in files if not path.is_file()]
    if absent or not files or not defined:
        return f"files that don't exist: {absent}; files: {len(files)}; functions and classes: {defined}"
    text = "\n".join(path.read_text() for path in files)
    definition = r"(?m)^ *(?:cdef |cpdef |class |def |static inline ).*\b{0}\b *[(:]|^{0}\b"
    return ", ".join(name for name in defined if not re.search(definition.format(name), text))


def test_the_places_exist() -> None:
    faults = {question: faults_of(question) for question in ROWS}
    assert {question: fault for question, fault in faults.items() if fault} == {}
