"""Runs programs under the shim of `tests/faults`, from states of the disk, and with faults."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.savers.registry import Saver

__all__ = ["FOLDERS", "NO_END", "Program", "Run", "build_shim", "lost_power"]

ROOT = Path(__file__).parents[2]
WORKER = Path(__file__).with_name("worker.py")
# What the watched directory has: that of the checkpoints, and that of temporary files, which some savers rename.
FOLDERS = ("model", "tmp")
LIMIT_SECS = 90
# How the error of a program begins that hasn't ended by then.
NO_END = "no end after"
# Far enough apart for each file system's clock.
MTIME_STEP_NS = 10 * 10**9
CTIME_STEP_SECS = 0.012

# The shim and the model of a disk belong to the tests.
sys.path.append(str(ROOT / "tests" / "support"))
lost_power = importlib.import_module("lost_power")
preload = importlib.import_module("preload")


class Run(NamedTuple):
    """How a program has ended.

    Attributes:
      ended: whether it ended with exit code 0.
      error: why not, in one line.
      started: the step at its start, and the least and the greatest of the weights; None if it didn't get there.
    """

    ended: bool
    error: str
    started: list[float] | None


def build_shim(folder: Path) -> Path:
    """Compiles the shim. Returns its path."""
    (library,) = preload.compile_preloads(folder, ["shim"])
    return Path(library)


class Program:
    """A program, and the directory in which it saves.

    Args:
      saver: the row of the table.
      python: the interpreter of its environment.
      shim: path of the compiled shim.
      place: an empty folder.
      start: starts the worker, as `subprocess.Popen` does.
    """

    def __init__(
        self, saver: Saver, python: str, shim: Path, place: Path, start: Callable[..., Any] = subprocess.Popen
    ) -> None:
        self._saver = saver
        self.watched = place / "watched"
        self._blobs = place / "blobs"
        self._blobs.mkdir()
        self._log, self._spec = place / "log", place / "spec"
        self._request = {
            "program": saver.program,
            "folder": str(self.watched / "model"),
            "report": str(place / "report"),
            "output": str(place / "output"),
            "limit_secs": LIMIT_SECS,
        }
        environment = {**os.environ, **saver.settings, "LD_PRELOAD": str(shim), "TMPDIR": str(self.watched / "tmp")}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path)) if python == sys.executable else ""
        self.empty()
        with (place / "errors").open("w") as errors:
            self._process: Any = start(
                [python, str(WORKER), saver.module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
            )
        self.versions: dict[str, str] = self._answer()

    def _answer(self) -> Any:
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker of {self._saver.title} has ended, with {self._process.wait()}")
        return json.loads(line)

    def _run(self, last: int, environment: dict[str, str]) -> Run:
        request = {**self._request, "last": last, "environment": environment}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return Run(**self._answer())

    def run(self, last: int) -> Run:
        """Trains to a step, from what the directory has."""
        return self._run(last, {})

    def run_logged(self, last: int) -> Run:
        """The same, with a log of the file operations."""
        directories = {"FAULTS_DIR": str(self.watched), "FAULTS_LOG": str(self._log), "FAULTS_BLOBS": str(self._blobs)}
        return self._run(last, directories)

    def run_with_faults(self, last: int, fault: str) -> Run:
        """The same, with a new log and a fault, a line of the shim."""
        self._log.write_text("")
        # The shim reads a file again if it is another one.
        self._spec.unlink(missing_ok=True)
        self._spec.write_text(fault)
        directories = {"FAULTS_DIR": str(self.watched), "FAULTS_LOG": str(self._log), "FAULTS_SPEC": str(self._spec)}
        return self._run(last, directories)

    def operations(self) -> list[Any]:
        """The log, as `lost_power.operations_in` reads it."""
        return list(lost_power.operations_in(self._log, self.watched))

    def blobs(self) -> dict[str, bytes]:
        """The copies of what was written, by number. Equal contents are one object."""
        known: dict[bytes, bytes] = {}
        contents = ((path.name, path.read_bytes()) for path in self._blobs.iterdir())
        return {name: known.setdefault(content, content) for name, content in contents}

    def files(self) -> dict[str, bytes]:
        """What the directory has, by path, without event files. Those that were changed last come last."""
        paths = (path for path in self.watched.rglob("*") if path.is_file() and "tfevents" not in path.name)
        in_order = sorted(paths, key=lambda path: path.stat().st_ctime_ns)
        return {str(path.relative_to(self.watched)): path.read_bytes() for path in in_order}

    def empty(self) -> None:
        """Empties the directory."""
        self.lay_out({}, FOLDERS)

    def lay_out(self, files: dict[str, bytes], folders: Iterable[str]) -> None:
        """Replaces what the directory has. The times of files have their order."""
        shutil.rmtree(self.watched, ignore_errors=True)
        self.watched.mkdir()
        for path in folders:
            (self.watched / path).mkdir()
        begun = time.time_ns() - (len(files) + 1) * MTIME_STEP_NS
        for number, (path, content) in enumerate(files.items()):
            (self.watched / path).write_bytes(content)
            os.utime(self.watched / path, ns=(begun, begun + number * MTIME_STEP_NS))
            if self._saver.by_ctime:
                time.sleep(CTIME_STEP_SECS)

    def close(self) -> None:
        """Ends the worker."""
        self._process.communicate()
