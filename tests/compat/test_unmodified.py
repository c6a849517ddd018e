"""Programs of TensorFlow 2 and Keras, in the style of other libraries: the same bits under `run --accelerate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parents[2] / "benchmarks" / "unmodified" / "programs"

pytestmark = [pytest.mark.timeout(600), pytest.mark.one_world, pytest.mark.slow]


@pytest.mark.parametrize("name", sorted(path.stem for path in PROGRAMS.glob("*.py")))
def test_prints_the_same_bits(children: Any, name: str) -> None:
    script = PROGRAMS / f"{name}.py"
    alone = children.run(script, fresh=True)
    assert alone.returncode == 0, alone.stderr[-3000:]
    accelerated = children.run("-m", "fastsup", "run", "--accelerate", script, fresh=True)
    assert accelerated.returncode == 0, accelerated.stderr[-3000:]
    assert accelerated.stdout == alone.stdout
    assert "0x" in alone.stdout
