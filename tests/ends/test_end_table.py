"""Programs that end while daemon threads use sessions: the short form of the table of docs/ends.md."""

from __future__ import annotations

import json
import os

import pytest
from processes import Processes


@pytest.mark.timeout(400)
def test_programs_end_as_they_should(processes: Processes) -> None:
    table = os.path.join(os.path.dirname(__file__), "end_table.py")
    ended = processes.python(table, "--short", "--impl", "fastsup", "--json", timeout=380, check=True)
    found = json.loads(ended.stdout)
    assert found["cells"] > 15
    assert found["problems"] == []
