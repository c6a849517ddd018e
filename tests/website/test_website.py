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


def test_the_picture_of_the_folders_is_that_of_today(in_the_root: Any) -> None:
    drawn = in_the_root("from website import architecture; print(architecture.draw(), end='')")
    assert (ROOT / "docs" / "pictures" / "architecture.svg").read_text() == drawn


def test_tables_and_charts_are_those_of_their_numbers(in_the_root: Any) -> None:
    program = "import json; from website import measured; print(json.dumps(measured.documents()))"
    documents = json.loads(in_the_root(program))
    assert {"README.md", "docs/benchmarks.md", "docs/peers.md", "docs/pictures/peers.svg"} < set(documents)
    for path, text in documents.items():
        assert (ROOT / path).read_text() == text, f"{path}: run `python -m website.measured`"


def test_no_picture_takes_anything_from_the_network() -> None:
    pictures = sorted((ROOT / "docs" / "pictures").glob("*.svg"))
    assert len(pictures) >= 3
    for picture in pictures:
        assert set(re.findall(r"https?://[^\s\"')]+", picture.read_text())) <= {"http://www.w3.org/2000/svg"}, picture


def test_the_check_finds_what_is_wrong(in_the_root: Any, tmp_path: Path) -> None:
    pytest.importorskip("griffe")
    (tmp_path / "a.html").write_text(
        '<h1 id="top">A</h1><a href="b.html#there">x</a><a href="b.html#gone">x</a><a href="c.html">x</a>'
        '<a href="#top">x</a><a href="https://example.org/">x</a><script src="https://example.org/x.js"></script>'
    )
    (tmp_path / "b.html").write_text('<h1 id="there">B</h1><p id="fastsup.train.Supervisor">')
    program = f"from pathlib import Path; from website import check; print(check.problems(Path({str(tmp_path)!r})))"
    found = ast.literal_eval(in_the_root(program))
    assert {problem for problem in found if "html" in problem} == {
        "a.html links to b.html#gone, and there is no such anchor",
        "a.html links to c.html, which isn't there",
        "a.html loads https://example.org/x.js from the network",
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
