"""Hooks of other packages, each in a program as its documents show it, under fastsup's sessions and Estimators.

`.ci/integrations` installs the packages and runs all of these. Without a package, its program is skipped.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest
from processes import Processes

import fastsup

PROGRAMS = Path(__file__).parent / "programs"
EXAMPLES = Path(__file__).parents[2] / "examples"
# By program, what it imports.
NEEDS = {
    "wandb_hook.py": "wandb",
    "comet_hook.py": "comet_ml",
    "optuna_pruning.py": "optuna_integration",
    "dlrover_hooks.py": "dlrover",
    "horovod_hook.py": None,
    "mlflow_hook.py": "mlflow",
}


def test_each_program_is_listed() -> None:
    programs = {path.name for path in PROGRAMS.glob("*.py")} - {"a_model.py"}
    assert programs | {"mlflow_hook.py"} == set(NEEDS)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", NEEDS)
def test_a_hook_of_another_package(name: str, tmp_path: Path, processes: Processes) -> None:
    package = NEEDS[name]
    is_there = "HOROVOD_SOURCE" in os.environ if package is None else find_spec(package) is not None
    if not is_there and "FASTSUP_INTEGRATIONS" not in os.environ:
        pytest.skip(f"{package or 'the source of horovod'} isn't installed: .ci/integrations installs all of them")
    path = [str(Path(fastsup.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path)), "HOME": str(tmp_path)}
    folder = EXAMPLES if name == "mlflow_hook.py" else PROGRAMS
    result = processes.python(folder / name, tmp_path / "files", cwd=tmp_path, env=environment, fresh=True)
    assert result.returncode == 0, result.stdout + result.stderr
