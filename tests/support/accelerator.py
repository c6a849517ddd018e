"""Builds the fake accelerator of tests/gpu/accelerator: a device with its own memory, where there is no GPU."""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path

from processes import Processes

SOURCES = Path(__file__).parents[1] / "gpu" / "accelerator"
LIBRARY = "accelerator.so"
_FLAGS = "import tensorflow as tf; print(*tf.sysconfig.get_compile_flags()); print(*tf.sysconfig.get_link_flags())"


class CannotBuildError(Exception):
    """The fake accelerator can't be built here; the text says why."""


def built(folder: Path, processes: Processes) -> Path:
    """Builds the fake accelerator, or takes the one that another worker of this test run has built.

    Args:
      folder: folder that the workers of a test run share.
      processes: starts the compilers.

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
            _build(library, processes)
    return library


def _build(library: Path, processes: Processes) -> None:
    asked = processes.python("-c", _FLAGS)
    compiling, linking = (line.split() for line in asked.stdout.splitlines()[-2:])
    includes = [flag for flag in compiling if flag.startswith("-I")]
    objects = []
    for source in sorted(SOURCES.glob("*.c*")):
        compiler = ("gcc", "-Wall", "-Werror", *includes) if source.suffix == ".c" else ("g++", "-w", *compiling)
        objects.append(library.with_name(f"{source.stem}.o"))
        _run(processes, *compiler, "-O1", "-g1", "-fPIC", "-c", source, "-o", objects[-1])
    # TensorFlow's C++ library is in the process already.
    part = library.with_suffix(".part")
    _run(processes, "g++", "-shared", *objects, *linking, "-l:libtensorflow_cc.so.2", "-lpthread", "-o", part)
    part.rename(library)


def _run(processes: Processes, *command: object) -> None:
    done = processes.run(*command)
    if done.returncode:
        raise CannotBuildError(f"{command[0]} has failed: {done.stderr[-2000:]}")
