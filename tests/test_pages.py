"""`python -m fastsup docs`, and the pages that messages name."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from processes import Processes

from fastsup.__main__ import main

pytestmark = pytest.mark.one_world

ROOT = Path(__file__).resolve().parent.parent
NAMED = re.compile(r"`python -m fastsup docs ([a-z0-9-]+(?:#[\w-]+)?)`")
# Not everybody has a checkout.
FILE_IN_MESSAGE = re.compile(r"""^[^#]*["'][^"']*docs/[a-z0-9-]+\.md""", re.MULTILINE)


SOURCES = {path: path.read_text() for kind in ("*.py", "*.pyx") for path in (ROOT / "fastsup").rglob(kind)}


def named_pages() -> list[str]:
    return sorted({name for text in SOURCES.values() for name in NAMED.findall(text)})


def test_messages_name_the_command() -> None:
    documented = {ROOT / "fastsup" / "pages.py"}
    found = {path: FILE_IN_MESSAGE.findall(text) for path, text in SOURCES.items() if path not in documented}
    assert {path: lines for path, lines in found.items() if [line for line in lines if '"""' not in line]} == {}


@pytest.mark.parametrize("name", named_pages())
def test_pages_that_messages_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", name]) == 0
    assert capsys.readouterr().out.startswith("#")


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert ["hooks", "Hooks"] in [line.split(None, 1) for line in lines]
    assert {line.split()[0] for line in lines} == {path.stem for path in ROOT.glob("docs/*.md")} - {"index"}


def test_a_section(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", "dropin#hooks"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("## Hooks\n")
    assert "\n## " not in text


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("nothing", "there is no page 'nothing'. The pages are architecture, benchmarks, "),
        ("dropin#nothing", "dropin has no section 'nothing'. Its sections are "),
    ],
)
def test_what_there_is_not(page: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["docs", page])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_reader_that_has_seen_enough(processes: Processes) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    # In a new interpreter: the command doesn't import TensorFlow.
    result = processes.python("-m", "fastsup", "docs", "dropin", fresh=True, stdout=writing)
    os.close(writing)
    assert (result.returncode, result.stderr) == (0, "")
