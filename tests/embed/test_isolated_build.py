"""The tutorial's module as a package, built by pip in an environment of its own: fastsup comes from a wheelhouse."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from processes import Processes

import fastsup

ROOT = Path(__file__).parents[2]
FILE = re.compile(r'^```\w+ title="(?P<name>[^"]+)"\n(?P<text>.*?)^```', re.DOTALL | re.MULTILINE)

pytestmark = [
    pytest.mark.one_world,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.environ.get("SANITIZE") == "1", reason="the build of the tutorial isn't what is sanitized"),
]


def test_the_tutorials_package_is_built_in_isolation(tmp_path: Path, processes: Processes) -> None:
    project, clone, target = (tmp_path / name for name in ("project", "clone", "target"))
    project.mkdir()
    tutorial = (ROOT / "docs" / "tutorial-embedding.md").read_text(encoding="utf-8")
    for file in FILE.finditer(tutorial):
        if file["name"] in ("pyproject.toml", "setup.py", "regression.c"):
            (project / file["name"]).write_text(file["text"])
    built = shutil.ignore_patterns(".git", "*.so", "build", "dist", "__pycache__", ".*_cache", "*.egg-info", ".venv*")
    shutil.copytree(ROOT, clone, ignore=built)
    # Nothing but the wheelhouse leads to fastsup. Its core is all that a module in C needs.
    settings = {"CORE_ONLY": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | settings

    def pip(*arguments: str) -> None:
        done = processes.python("-m", "pip", "-q", *arguments, cwd=project, env=environment, fresh=True, timeout=500)
        assert done.returncode == 0, done.stdout + done.stderr

    in_tutorial = re.findall(r"^pip ((?:wheel|install) .*)$", tutorial, re.MULTILINE)
    assert len(in_tutorial) == 3
    for command in in_tutorial:
        arguments = command.replace("CLONE", str(clone)).split()
        # Not into the environment of the tests.
        pip(*arguments, *(("--target", str(target), "--no-deps") if arguments[0] == "install" else ()))
    assert [path.name.partition("-")[0] for path in sorted((project / "wheelhouse").iterdir())] == [
        "fastsup",
        "regression",
    ]
    program = "import regression; print(regression.__file__, regression.stop_hook())"
    paths = os.pathsep.join([str(target), str(Path(fastsup.__file__).parents[1])])
    done = processes.python("-c", program, cwd=tmp_path, env={**environment, "PYTHONPATH": paths}, fresh=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{target}/regression.")
    assert "NativeHook" in done.stdout
