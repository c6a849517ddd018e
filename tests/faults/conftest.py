"""Programs whose file operations are counted, logged and failed: see shim.c."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from long_faults import LONG
from lost_power import Operation, operations_in
from preload import compile_preloads
from processes import Processes

sys.path.append(str(Path(__file__).parents[1] / "cluster"))

from faulty_job import FaultyJob

HERE = Path(__file__).parent
CLUSTER = HERE.parent / "cluster"


class Faults:
    """Runs programs of programs.py under the shim.

    Args:
      processes: starts the programs.
      shim: path of the compiled shim.
      place: folder of the test.
    """

    def __init__(self, processes: Processes, shim: Path, place: Path) -> None:
        self._processes = processes
        self.folder = place / "model"
        self.folder.mkdir()
        self.blobs = place / "blobs"
        self.blobs.mkdir()
        self._log = place / "log"
        self._spec = place / "spec"
        self._environment = {
            **os.environ,
            "LD_PRELOAD": str(shim),
            "FAULTS_DIR": str(self.folder),
            "FAULTS_LOG": str(self._log),
            "FAULTS_BLOBS": str(self.blobs),
            "FAULTS_SPEC": str(self._spec),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            # For the ways to save, which programs.py and the tests share.
            "PYTHONPATH": os.pathsep.join(filter(None, (str(HERE.parent / "support"), os.environ.get("PYTHONPATH")))),
        }

    def _start(self, program: str, *args: Any) -> Any:
        command = (HERE / "programs.py", program, self.folder, json.dumps(args))
        # A long run makes hundreds of trainings in a process.
        limit = {"timeout": 3000} if LONG else {}
        return self._processes.python(*command, env=self._environment, **limit)

    def run(self, program: str, *args: Any) -> Any:
        """Runs a function of programs.py, and returns what it returns."""
        done = self._start(program, *args)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def each_operation(self, way: str, start: int, fault: str, lasting: bool, first: int, stride: int) -> list[Any]:
        """The results of `each_operation` of programs.py, in as many processes as it takes."""
        results: list[Any] = []
        while True:
            done = self._start("each_operation", way, start, fault, lasting, first, stride)
            found = [json.loads(line) for line in done.stdout.splitlines()]
            results += found
            if done.returncode == 0:
                return results
            # TensorFlow's reader crashes if it can't read an index to its end.
            assert done.returncode == -signal.SIGSEGV, done.stderr
            after_a_crash = bool(found) and found[0][1] == "crashed"
            first += stride * (len(found) - after_a_crash + 1)
            self._spec.unlink()

    def failed(self) -> list[tuple[str, str]]:
        """The faults so far: the operation and the path."""
        lines = [line.split("\t") for line in self._log.read_text().splitlines()]
        return [(operation, path) for what, path, operation in lines if what == "failed"]

    def operations(self) -> list[Operation]:
        """The operations so far."""
        return operations_in(self._log, self.folder)


@pytest.fixture(scope="session")
def preloads(processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The libraries with which file operations fail and clocks are set, compiled."""

    def run(command: list[str], **settings: Any) -> Any:
        return processes.run(*command, **settings)

    return compile_preloads(tmp_path_factory.mktemp("preloads"), ["shim", "clock"], run)


@pytest.fixture(scope="session")
def shim(preloads: list[Path]) -> Path:
    """The library with which file operations fail."""
    return preloads[0]


@pytest.fixture
def faults(processes: Processes, shim: Path, tmp_path: Path) -> Faults:
    """Runs programs whose file operations in `faults.folder` are logged, and fail where the program says so."""
    return Faults(processes, shim, tmp_path)


@pytest.fixture
def new_job(processes: Processes, tmp_path: Path, preloads: list[Path]) -> Iterator[Callable[..., FaultyJob]]:
    """Makes a `FaultyJob` of a program of tests/cluster. Its tasks are killed when the test has ended."""
    with ExitStack() as stack:

        def make(
            program: str,
            tasks: Iterable[str],
            linked: Iterable[tuple[str, str]] = (),
            preload: bool = False,
            **settings: Any,
        ) -> FaultyJob:
            libraries = preloads if preload else []
            job = FaultyJob(tmp_path, CLUSTER / program, tasks, processes.start_python, linked, libraries, **settings)
            stack.enter_context(job.cluster)
            return job

        yield make
