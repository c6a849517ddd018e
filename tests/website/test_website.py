"""What the documentation site is made of. `make docs` builds the site itself, and checks its links."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import Processes

ROOT = Path(__file__).parents[2]


@pytest.fixture
def in_the_root(processes: Processes) -> Callable[[str], str]:
    """Runs a program in the root folder, where it can import website, and gives what it prints."""

    def run(program: str) -> str:
        # Without TensorFlow, a new interpreter is the quickest.
        done = processes.python("-c", program, fresh=True, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    return run


@pytest.fixture(scope="module")
def griffe_pyx() -> Any:
    pytest.importorskip("griffe")
    spec = importlib.util.spec_from_file_location("griffe_pyx", ROOT / "website" / "griffe_pyx.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_are_those_of_their_numbers(in_the_root: Any) -> None:
    program = "import json; from website import measured; print(json.dumps(measured.documents()))"
    documents = json.loads(in_the_root(program))
    assert {"README.md", "docs/benchmarks.md", "docs/peers.md"} < set(documents)
    for path, text in documents.items():
        assert (ROOT / path).read_text() == text, f"{path}: run `python -m website.measured`"


@pytest.mark.parametrize(("picture", "results"), [("peers", "peers"), ("steps-by-hooks", "hook_counts")])
def test_charts_are_those_of_their_numbers(picture: str, results: str, in_the_root: Any) -> None:
    """Their texts are. Each release of matplotlib draws them a little differently."""
    pytest.importorskip("matplotlib")
    program = f"from website import measured; print(measured.charts()['docs/pictures/{picture}.svg'], end='')"
    texts = re.compile(r"<text[^>]*>([^<]*)</text>")
    drawn = texts.findall(in_the_root(program))
    assert len(drawn) > 10
    shown = (ROOT / "docs" / "pictures" / f"{picture}.svg").read_text()
    assert texts.findall(shown) == drawn, "run `python -m website.measured`"
    date = json.loads((ROOT / "benchmarks" / "results" / f"{results}.json").read_text())["machine"]["date"][:10]
    assert date in shown


def test_no_picture_takes_anything_from_the_network() -> None:
    pictures = sorted((ROOT / "docs" / "pictures").glob("*.svg"))
    assert len(pictures) >= 3
    for picture in pictures:
        # Names of formats aren't loaded.
        assert re.findall(r"https?://(?!www\.w3\.org/)[^\s\"')]+", picture.read_text()) == [], picture


def test_the_check_finds_what_is_wrong(in_the_root: Any, tmp_path: Path) -> None:
    pytest.importorskip("griffe")
    (tmp_path / "a.html").write_text(
        '<h1 id="top">A</h1><a href="https://example.org/">x</a><script src="https://example.org/x.js"></script>'
        '<img src="//example.org/x.png"><link rel="stylesheet" href="a.css">'
    )
    (tmp_path / "b.html").write_text('<p id="fastsup.train.Supervisor">')
    program = f"from pathlib import Path; from website import check; print(check.problems(Path({str(tmp_path)!r})))"
    found = ast.literal_eval(in_the_root(program))
    assert {problem for problem in found if "html" in problem} == {
        "a.html loads https://example.org/x.js from the network",
        "a.html loads //example.org/x.png from the network",
    }
    assert "the reference has no fastsup.train.MonitoredTrainingSession" in found
    assert "the reference has no fastsup.train.Supervisor" not in found


def test_docstrings_of_a_compiled_module(griffe_pyx: Any) -> None:
    source = '''
"""Of the module."""

def free(x, y={"a": 1}):
    """Of a function.

    Args:
      x: a number.
    """

cdef class Loop:
    """Loop(step)\\n--\\n
    Runs "steps".
    """

    cdef int inner(self) except -1:
        """Not public."""

    def run(self,
            count=1):
        """Of a method."""

    cpdef due_at(self, object step):
        """Without a type."""

    cpdef const char* name(self) except *:
        """With one."""

    def silent(self):
        return """no docstring"""

class Other(Loop):
    """Of another."""
'''
    assert griffe_pyx.docstrings_of(source) == {
        "free": "Of a function.\n\nArgs:\n  x: a number.",
        "Loop": 'Runs "steps".',
        "Loop.inner": "Not public.",
        "Loop.run": "Of a method.",
        "Loop.due_at": "Without a type.",
        "Loop.name": "With one.",
        "Other": "Of another.",
    }
