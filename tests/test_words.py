"""Words that readers stumble over, in code, documents and examples. Each has a plainer one."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = [
    path
    for folder, endings in (
        ("fastsup", (".py", ".pyx", ".pxd", ".pyi", ".h")),
        ("csrc", (".c", ".h", ".cc")),
        ("docs", (".md",)),
        ("examples", (".py", ".md", ".c", ".pyx")),
    )
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in endings
]
FILES += [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
# What to write in place of it.
WORDS = {
    r"(?<!here )\b(?:is|are|was|were) no (?!longer\b|more\b|other\b|such\b|need\b)[a-z]+": "isn't a ...",
    r"\b(?:is|are) none of (?:the|that)\b": "isn't one of ...",
    r"\b(?:nobody|somebody|anybody|whoever)\b": "name the caller, the thread, the program",
    r"\bany more\b": "no longer",
    r"\banew\b": "again",
    r"\bof (?:its|their|his) own\b": "its own ...",
    r"\bby itself\b": "on its own, alone",
    r"\bbeside\b": "alongside, next to, in addition to",
    r"\bbehind\b": "after, upstream of",
    r"\btakes? note\b": "records",
    r"\blets? (?:it|them|the [a-z]+) go\b": "releases",
    r"\bso many\b": "this many",
    r"\b(?:has|have) come\b": "was received, is there",
}
WORD = re.compile("|".join(f"({pattern})" for pattern in WORDS), re.IGNORECASE)


def found_in(text: str) -> list[str]:
    """The lines of a text with such words, each with what to write in their place."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        for match in WORD.finditer(line):
            better = list(WORDS.values())[(match.lastindex or 1) - 1]
            found.append(f"{number}: {match[0]!r} ({better}): {line.strip()}")
    return found


def test_the_words_are_plain() -> None:
    found = {
        str(path.relative_to(ROOT)): found_in(path.read_text(encoding="utf-8", errors="replace")) for path in FILES
    }
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_the_words_are_found() -> None:
    assert len(found_in("It is no number.\nNobody has it any more.\nThere is no checkpoint, and it has no name.")) == 3
    assert len(FILES) > 100
