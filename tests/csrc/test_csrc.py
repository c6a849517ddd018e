"""The code of csrc/, compiled on its own with warnings as errors, and run under ASan and UBSan."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from processes import Processes

ROOT = Path(__file__).parents[2]
FLAGS = ["-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pedantic"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]


@pytest.mark.parametrize("program", sorted(path.stem for path in Path(__file__).parent.glob("check_*.c")))
def test_under_sanitizers(program: str, processes: Processes, tmp_path: Path) -> None:
    sources = [Path(__file__).with_name(f"{program}.c"), *sorted((ROOT / "csrc").glob("*.c"))]
    includes = [f"-I{ROOT / 'csrc'}", f"-I{ROOT / 'fastsup' / 'include'}"]
    built = processes.run("gcc", *FLAGS, *SANITIZERS, *includes, "-o", tmp_path / program, *sources, "-lm")
    assert built.returncode == 0, built.stderr
    # The compiled program brings its own sanitizer; one that is preloaded for Python would be in its way.
    environment = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "ASAN_OPTIONS")}
    ran = processes.run(tmp_path / program, env=environment)
    assert (ran.returncode, ran.stderr) == (0, "")
