"""Builds the fake accelerator of tests/gpu/accelerator: a device with its own memory, where there is no GPU."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

SOURCES = Path(__file__).parents[1] / "gpu" / "accelerator"
LIBRARY = "accelerator.so"
_FLAGS = "import tensorflow as tf; print(*tf.sysconfig.get_compile_flags()); print(*tf.sysconfig.get_link_flags())"


# Runs a command to its end, with its output as text.
Runner: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]


class CannotBuildError(Exception):
    """The fake accelerator can't be built here; the text says why."""


def built(folder: Path, run: Runner) -> Path:
    """Builds the fake accelerator, or takes the one that is in the folder: another worker has built it.

    Args:
      folder: folder that the workers of a test run share.
      run: runs the compilers.

    Returns:
      Path of the library, for `load_pluggable_device_library`.

    Raises:
      CannotBuildError: there is no compiler, or it fails: TensorFlow's headers differ from version to version.
    """
    library = folder / LIBRARY
    with open(folder / f"{LIBRARY}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            if not shutil.which("gcc") or not shutil.which("g++"):
                raise CannotBuildError("there is no gcc or g++")
            _build(library, run)
    return library


def _build(library: Path, run: Runner) -> None:
    asked = run(sys.executable, "-c", _FLAGS)
    compiling, linking = (line.split() for line in asked.stdout.splitlines()[-2:])
    includes = [flag for flag in compiling if flag.startswith("-I")]
    objects = []
    for source in sorted(SOURCES.glob("*.c*")):
        compiler = ("gcc", "-Wall", "-Werror", *includes) if source.suffix == ".c" else ("g++", "-w", *compiling)
        objects.append(library.with_name(f"{source.stem}.o"))
        _compile(run, *compiler, "-O1", "-g1", "-fPIC", "-c", source, "-o", objects[-1])
    # TensorFlow's C++ library is in the process already.
    part = library.with_suffix(".part")
    _compile(run, "g++", "-shared", *objects, *linking, "-l:libtensorflow_cc.so.2", "-lpthread", "-o", part)
    part.rename(library)


def _compile(run: Runner, *command: object) -> None:
    done = run(*command)
    if done.returncode:
        raise CannotBuildError(f"{command[0]} has failed: {done.stderr[-2000:]}")
