"""Shared libraries that are loaded before libc's functions, and change what a process gets from the system.

`shim.c` counts, logs and fails file operations; `clock.c` shifts the time of day.
"""

from __future__ import annotations

import subprocess
import sysconfig
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

__all__ = ["compile_preloads"]

_SOURCES = Path(__file__).parents[1] / "faults"


def compile_preloads(folder: Path, names: Iterable[str], run: Callable[..., Any] = subprocess.run) -> list[Path]:
    """Compiles libraries of tests/faults.

    Args:
      folder: where the libraries go.
      names: names of the sources, without ".c".
      run: runs a command, given as a list, as `subprocess.run` does.

    Returns:
      The paths of the libraries.
    """
    compiler = (sysconfig.get_config_var("CC") or "cc").split()
    libraries = []
    for name in names:
        library = folder / f"{name}.so"
        options = ["-shared", "-fPIC", "-O1", "-o", str(library), "-ldl", "-lpthread"]
        run([*compiler, str(_SOURCES / f"{name}.c"), *options], check=True)
        libraries.append(library)
    return libraries
