"""The table of differences: each row is whole, and the arguments that it names are there."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "dropin.md"
HEAD = "| difference | TensorFlow | fastsup | for TensorFlow's behavior |"
PACKAGES = ("fastsup", "fastsup.train", "fastsup.estimator", "fastsup.experiment")


def sections() -> dict[str, list[list[str]]]:
    """The rows of each table, by the heading of its section."""
    found: dict[str, list[list[str]]] = {}
    for text in PAGE.read_text().split("\n## ")[1:]:
        heading, _, body = text.partition("\n")
        lines = [line for line in body.splitlines() if line.startswith("|")]
        if lines:
            assert lines[0] == HEAD, heading
            # A pipe within `code` would end a cell.
            found[heading] = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    return found


def parameters() -> set[str]:
    """The names of the parameters of the public classes and functions."""
    found = set()
    for package in map(importlib.import_module, PACKAGES):
        for name in package.__all__:
            value = getattr(package, name)
            if callable(value) and not (inspect.isclass(value) and issubclass(value, Exception)):
                found |= set(inspect.signature(value).parameters)
    return found


def test_every_row_is_whole() -> None:
    tables = sections()
    assert set(tables) == {
        "Sessions and executors", "Hooks", "Checkpoints", "Supervisor", "Estimator", "Clusters",
        "Experiment and tf.contrib", "Signals and ends",
    }  # fmt: skip
    for heading, rows in tables.items():
        for row in rows:
            assert len(row) == 4, (heading, row)
            assert all(row[column] for column in (0, 2, 3)), (heading, row)


@pytest.mark.parametrize("heading", sections())
def test_arguments_that_bring_the_behaviour_back_are_there(heading: str) -> None:
    known = parameters()
    for row in sections()[heading]:
        named = set(re.findall(r"(?:`|\(|, )(\w+)=", row[3]))
        assert named <= known, row
