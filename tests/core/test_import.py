"""The modules that importing the package loads, in its own process."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from processes import Processes

import fastsup


def test_core_is_imported_without_tensorflow(processes: Processes) -> None:
    script = Path(__file__).parents[1] / "import_time.py"
    result = processes.python(script, fresh=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_says_what_to_install_where_there_is_no_tensorflow(processes: Processes, tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['tensorflow'] = None\ntry: import fastsup.train\nexcept ImportError as e: print(e)"
    )
    # Not in the source folder, whose package would be imported in place of the installed one.
    result = processes.python("-c", script, cwd=tmp_path, fresh=True)
    assert "pip install 'fastsup[cpu]'" in result.stdout


@pytest.mark.parametrize(
    "program", ["import fastsup.core", "import fastsup; fastsup.Session", "import fastsup.runtime"]
)
def test_sources_that_are_not_compiled_say_so(processes: Processes, tmp_path: Path, program: str) -> None:
    """The error of a Python that was started in the folder of the sources."""
    shutil.copytree(
        Path(fastsup.__file__).parent, tmp_path / "fastsup", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    result = processes.python("-c", program, cwd=tmp_path, fresh=True)
    version = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    assert f"fastsup isn't compiled for {version} in {tmp_path}, the folder that Python imports." in result.stderr
    assert f"Compile it there: {sys.executable} -m pip install -e {tmp_path} - or start" in result.stderr


def test_a_second_interpreter_is_refused(processes: Processes, tmp_path: Path) -> None:
    script = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
import fastsup.core
program = "import fastsup.core"
other = interpreters.create()
try:
    error = getattr(interpreters, "exec", interpreters.run_string)(other, program)
    print(getattr(error, "formatted", error))
except Exception as error:
    print(error)
interpreters.destroy(other)
print("still counts:", fastsup.core.StepLoop(int, max_steps=3).run())
"""
    result = processes.python("-c", script, cwd=tmp_path, fresh=True)
    assert result.returncode == 0, result.stderr
    assert re.search("only be loaded into one interpreter|does not support loading in subinterpreters", result.stdout)
    assert "still counts: 0" in result.stdout


WITHOUT_TENSORFLOW = """
import sys
sys.modules["tensorflow"] = None
import numpy as np
import fastsup

x = np.arange(20).reshape(10, 2)
batches = fastsup.ArrayBatches({"y": x[:, 0], "x": (x, [x])}, 4, shuffle=True, seed=7, epochs=2)
from fastsup.loop import StepLoop
total = []
StepLoop(lambda: total.append(next(batches)), max_steps=4).run()
print([(list(map(int, batch["y"])), batch["x"][1][0].shape, list(batch)) for batch in total])
state = batches.serialize()
print(batches.position, [len(batch["y"]) for batch in batches])
batches.deserialize(state)
print(batches.position, batches)
for name in ("Session", "bind", "contrib", "estimator", "experiment", "function", "keras", "train"):
    try:
        getattr(fastsup, name)
    except ModuleNotFoundError as error:
        assert "pip install 'fastsup[cpu]'" in str(error) and error.name == "tensorflow", (name, error)
        print(name)
try:
    batches.element_spec
except ModuleNotFoundError as error:
    assert "pip install 'fastsup[cpu]'" in str(error), error
    print("element_spec")
"""


def test_arrays_have_the_same_batches_without_tensorflow(processes: Processes, tmp_path: Path) -> None:
    result = processes.python("-c", WITHOUT_TENSORFLOW, cwd=tmp_path, fresh=True)
    assert result.returncode == 0, result.stderr
    first, *lines = result.stdout.splitlines()
    x = np.arange(20).reshape(10, 2)
    batches = fastsup.ArrayBatches({"y": x[:, 0], "x": (x, [x])}, 4, shuffle=True, seed=7, epochs=2)
    expected = [next(batches) for _ in range(4)]
    assert first == str([(list(map(int, batch["y"])), batch["x"][1][0].shape, list(batch)) for batch in expected])
    assert lines == [
        "4 [4, 2]",
        "4 <fastsup.ArrayBatches of 10 rows, 4 a batch, at batch 4>",
        *["Session", "bind", "contrib", "estimator", "experiment", "function", "keras", "train"],
        "element_spec",
    ]


def test_says_what_to_install_where_there_is_no_keras(processes: Processes, tmp_path: Path) -> None:
    script = "import sys; sys.modules['keras'] = None\ntry: import fastsup.keras\nexcept ImportError as e: print(e)"
    result = processes.python("-c", script, cwd=tmp_path, fresh=True)
    assert result.stdout.startswith("fastsup.keras needs Keras 3, which isn't installed."), result.stderr
    assert "pip install 'keras>=3'" in result.stdout
