"""The example, built and run as its README says."""

from __future__ import annotations

import os
import re
from pathlib import Path

from processes import Processes

import fastsup


def test_trains_in_c(processes: Processes, built_example: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(fastsup.__file__).parents[1])}
    result = processes.python("train.py", cwd=built_example, env=environment, fresh=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.match(r"2,000,000 steps, \d+ ns each\n", result.stdout)
    assert "weights 0.000 1.000 2.000 3.000 4.000 5.000 6.000 7.000" in result.stdout
    assert "4 checkpoints, the last at step 2,000,000" in result.stdout
    # The progress, which goes to stderr: lines, for this isn't a terminal.
    assert re.search(r"^step 2,000,000 of 2,000,000 \(100%\), [\d,]+ steps/s, loss ", result.stderr, re.MULTILINE)
