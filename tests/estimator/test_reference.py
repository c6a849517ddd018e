"""The same program as under tensorflow-estimator 2.15: the same losses, metrics, log, events, files, signatures."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from fastsup import estimator as est
from fastsup import train

HERE = Path(__file__).parent
WORLD = "v1" if os.environ.get("FASTSUP_TEST_WORLD") == "v1" else "v2"
EXPECTED = json.loads((HERE / "reference_2_15.json").read_text())[WORLD]


@pytest.fixture(scope="module")
def found() -> Any:
    spec = importlib.util.spec_from_file_location("reference_program", HERE / "reference_program.py")
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program.run(est, est.inputs, train)


def close(expected: Any, actual: Any) -> None:
    """Equal, but for the last digits of floating-point numbers."""
    if isinstance(expected, float):
        assert actual == pytest.approx(expected, rel=1e-5, abs=1e-6)
    elif isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for key, value in expected.items():
            close(value, actual[key])
    elif isinstance(expected, list):
        assert len(actual) == len(expected), (actual, expected)
        for one, other in zip(expected, actual, strict=True):
            close(one, other)
    else:
        assert actual == expected


def as_one_file(found: list[str]) -> list[str]:
    """Leaves out the later ones of several event files: a session here closes its own, and the next begins another."""
    kept: list[str] = []
    for item in found:
        if item not in kept or not (item == "events" or "file_version" in item):
            kept.append(item)
    return kept


def as_a_save(line: Any) -> Any:
    """A checkpoint that was just restored is saved over itself there, and left as it is here, which a line says."""
    return re.sub(
        r"^The checkpoint of step (\d+), (.*)-\d+, already contains this state and is left unchanged\. See `[^`]+`\.$",
        r"Saving checkpoints for \1 into \2.",
        line,
    )


@pytest.mark.parametrize("what", list(EXPECTED))
def test_finds_what_the_reference_finds(found: Any, what: str) -> None:
    if what in ("files", "events"):
        close(EXPECTED[what], as_one_file(found[what]))
    elif what.endswith(" log"):
        close(EXPECTED[what], [as_a_save(line) for line in found[what]])
    else:
        close(EXPECTED[what], found[what])


def test_finds_nothing_more(found: Any) -> None:
    assert found.keys() == EXPECTED.keys()
