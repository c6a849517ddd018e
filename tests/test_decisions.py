"""The table of decisions in docs/development.md: each row names places that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "development.md").read_text()
TABLE = TEXT[TEXT.index("## Where a decision is made") :].partition("\n## ")[0]
ROWS = dict(line.strip("| ").split(" | ", 1) for line in TABLE.splitlines() if line.startswith("| ") and "`" in line)


def test_there_are_rows() -> None:
    assert len(ROWS) > 30


@pytest.mark.parametrize("question", ROWS)
def test_the_place_exists(question: str) -> None:
    """A row names files, the second one of a folder without the folder; and what is defined in one of these files."""
    names = re.findall(r"`([^`()]+)(?:\(\))?`", ROWS[question])
    files: list[Path] = []
    defined: list[str] = []
    for name in names:
        if name.endswith((".py", ".pyx", ".pxd", ".h")):
            files.append(ROOT / name if "/" in name else files[-1].parent / name)
        else:
            defined += name.split(".")
    assert files, "the row names no file"
    assert [path for path in files if not path.is_file()] == []
    text = "\n".join(path.read_text() for path in files)
    for name in defined:
        definition = rf"(?m)^ *(?:cdef |cpdef |class |def |static inline ).*\b{name}\b *[(:]|^{name}\b"
        assert re.search(definition, text), f"{name} isn't defined in {[path.name for path in files]}"
