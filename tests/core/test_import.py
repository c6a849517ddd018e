"""The modules that importing the package loads, in its own process."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

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
    assert f"fastsup isn't compiled for {version} in {tmp_path}, where Python found it." in result.stderr
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
