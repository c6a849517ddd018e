"""The programs of docs/training-programs.md, each as its user runs it: to the end, and again after a kill."""

from __future__ import annotations

import json
import re
import signal
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from processes import Processes

pytest.importorskip("sklearn")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "training-programs.md").read_text()
PROGRAMS = {"tf2": "tensorflow", "jax": "optax", "torch": "torch", "numpy": "numpy"}


def test_the_page_has_the_programs() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("train_*.py")} == {f"train_{name}" for name in PROGRAMS}
    for name in PROGRAMS:
        _, _, code = (ROOT / "examples" / f"train_{name}.py").read_text().split('"""', 2)
        assert code.strip() in PAGE, name
        # Forty lines, and the blank ones.
        assert len([line for line in code.splitlines() if line.strip()]) <= 42, name


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_trains_and_goes_on_after_a_kill(
    tmp_path: Path, name: str, processes: Processes, environment: dict[str, str]
) -> None:
    if find_spec(PROGRAMS[name]) is None:
        pytest.skip(f"{PROGRAMS[name]} isn't installed")
    program, folder = ROOT / "examples" / f"train_{name}.py", tmp_path / "model"
    process = processes.start_python(program, folder, cwd=tmp_path, env=environment, fresh=True)
    deadline = time.monotonic() + 120
    # The evaluation of each epoch that is the best so far is saved.
    while len(list(folder.glob("save-*"))) < 5:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    result: Any = processes.python(program, folder, cwd=tmp_path, env=environment, fresh=True, timeout=150)
    assert result.returncode == 0, result.stderr
    found = re.search(r"Step (\d+), resumed from (\d+): test accuracy ([\d.]+)%", result.stdout)
    assert found, result.stdout
    last, resumed, accuracy = found.groups()
    assert 0 < int(resumed) < int(last)
    assert float(accuracy) > 95
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert {row["name"] for row in rows} == {"loss", "eval/accuracy"}
