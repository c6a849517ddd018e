"""The table of decisions in docs/internals.md: each row names places that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "internals.md").read_text()
TABLE = TEXT[TEXT.index("## Where a decision is made") :].partition("\n## ")[0]
ROWS = dict(line.strip("| ").split(" | ", 1) for line in TABLE.splitlines() if line.startswith("| ") and "`" in line)


def test_there_are_rows() -> None:
    assert len(ROWS) > 30


@pytest.mark.parametrize("question", ROWS)
def test_the_place_exists(question: str) -> None:
    """A row names what is defined in one of its files. The second file of a folder stands there without the folder."""
    names = re.findall(r"`([^`()]+)(?:\(\))?`", ROWS[question])
    files: list[Path] = []
    defined: list[str] = []
    for name in names:
        if name.endswith((".py", ".pyx", ".pxd", ".h")):
            files.append(ROOT / name if "/" in name else files[-1].parent / name)
        else:
            defined += name.split(".")
    assert files, "the row names no file"
    assert defined, "the row doesn't say which function or class of the file decides"
    assert [path for path in files if not path.is_file()] == []
    text = "\n".join(path.read_text() for path in files)
    for name in defined:
        definition = rf"(?m)^ *(?:cdef |cpdef |class |def |static inline ).*\b{name}\b *[(:]|^{name}\b"
        assert re.search(definition, text), f"{name} isn't defined in {[path.name for path in files]}"


# What makes a decision of the table, as it reads in the sources, and the files that may hold it.
ONLY_IN = {
    r">= due->(run|global_step)": ["fastsup/include/fastsup/due.h"],
    r"\bfs_due_reached\(": [
        "fastsup/include/fastsup/due.h",
        "csrc/drive.c",
        "fastsup/core/hook.pyx",
        "fastsup/core/schedule.pxd",
    ],
    r"\bdue_reached\(": ["fastsup/core/schedule.pxd", "fastsup/train/run_snapshot.pxd"],
    r"\bclock_gettime\(\w": ["csrc/clock.c"],
    r"\bfsync\(": ["fastsup/common/files.py"],
    r"\bos\.(replace|rename)\(": ["fastsup/common/files.py"],
    r"\bsignal\.signal\(": ["fastsup/common/stop_signals.pyx", "fastsup/keras/interrupts.py"],
    # Programs replace the second one.
    r"AbortedError\"?, (errors\.|\")UnavailableError": [
        "fastsup/common/tensorflow_errors.py",
        "fastsup/train/session/monitored_session.py",
    ],
    r"\bTF_CloseSession\b": ["fastsup/runtime/session.py"],
    r"\bregister_at_fork\(": [
        "fastsup/common/stop_signals.pyx",
        "fastsup/eager/bridge.py",
        "fastsup/events/writers.py",
        "fastsup/profile/recording/recorder.pyx",
        "fastsup/common/interpreter_end.py",
        "fastsup/runtime/session.py",
    ],
}
GENERATED = {path.with_suffix(".c") for path in (ROOT / "fastsup").rglob("*.pyx")}
SOURCES = {
    path: path.read_text()
    for folder in ("fastsup", "csrc")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".py", ".pyx", ".pxd", ".c", ".cc", ".h") and path not in GENERATED
}


@pytest.mark.parametrize("pattern", ONLY_IN)
def test_no_second_place_decides(pattern: str) -> None:
    found = {str(path.relative_to(ROOT)) for path, text in SOURCES.items() if re.search(pattern, text)}
    assert found == set(ONLY_IN[pattern])
