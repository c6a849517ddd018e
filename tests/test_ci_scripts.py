"""What the scripts in .ci import from fastsup exists. Some of them run at night or before a release alone."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

SCRIPTS = [path for path in sorted((Path(__file__).parents[1] / ".ci").iterdir()) if path.is_file()]
IMPORTS = [
    (path.name, module, name.strip())
    for path in SCRIPTS
    for module, names in re.findall(r"^from (fastsup[\w.]*) import (.+)$", path.read_text(), re.MULTILINE)
    for name in names.split(",")
]


def test_imports_are_found() -> None:
    assert {script for script, _, _ in IMPORTS} >= {"canary"}


@pytest.mark.parametrize(("script", "module", "name"), IMPORTS)
def test_the_name_exists(script: str, module: str, name: str) -> None:
    assert hasattr(importlib.import_module(module), name)
