"""The processes that tests start: a pytest plugin with the fixture `processes`.

A test that starts a process takes it from the fixture `processes`, directly or through another fixture, and is marked
`process` for that: `pytest -m "not process"` leaves it out. A test that starts one in another way fails.

Programs in Python are forked from a server that has imported TensorFlow (`fork_server.py`), since the import takes
longer than most of them. `fresh=True` starts a new interpreter. The environment variable `FASTSUP_TEST_FORK=0` has all
programs started so.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Processes", "processes"]

_SERVER = Path(__file__).with_name("fork_server.py")
_PR_SET_CHILD_SUBREAPER = 36
# What an interpreter or a library reads at its start: programs with other such variables have another server.
_READ_AT_START = ("PYTHON", "LD_", "MALLOC_", "OPENBLAS_", "OMP_", "TF_USE_LEGACY_KERAS", "KERAS_BACKEND")
_TIMEOUT_SECS = 150


def _read_at_start(environment: Any) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_READ_AT_START) and name not in ("PYTHONPATH", "OPENBLAS_NUM_THREADS")
    }


class _ForkServer:
    """The process that forks children.

    Args:
      at_start: the variables of its environment that are read at the start.
    """

    def __init__(self, at_start: dict[str, str]) -> None:
        # The children become this process's own when their parent ends.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._connection, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        here = _read_at_start(os.environ)
        environment = {name: value for name, value in os.environ.items() if name not in here}
        with other:
            # OpenBLAS starts threads when NumPy is imported, which children would lack.
            self._process = subprocess.Popen(
                [sys.executable, str(_SERVER), str(other.fileno())],
                pass_fds=[other.fileno()],
                env={**environment, **at_start, "OPENBLAS_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
            )
        if self._connection.recv(10) != b"ready":
            raise RuntimeError(f"the fork server ended with exit code {self._process.wait()}")

    def fork(self, request: dict[str, Any], descriptors: Sequence[int]) -> int:
        socket.send_fds(self._connection, [json.dumps(request).encode()], descriptors)
        return int(self._connection.recv(20))

    def end(self) -> None:
        self._connection.close()
        self._process.wait(30)


class _ForkedPopen(subprocess.Popen[Any]):
    """A Popen whose process is forked from the server. How a child is started is all that differs."""

    def __init__(self, server: _ForkServer, arguments: Sequence[str], **settings: Any) -> None:
        self._server = server
        super().__init__(arguments, **settings)

    def _execute_child(self, args: Any, *settings: Any) -> None:
        # The parameters of CPython's method, which are the same in each release from 3.10 to 3.13.
        _, _, _, _, cwd, env, _, _, _, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite = settings[:15]
        start_new_session = settings[20]
        environment = os.environ if env is None else env
        search = environment.get("PYTHONPATH", "")
        request = {
            "arguments": args,
            "folder": os.fspath(os.getcwd() if cwd is None else cwd),
            "environment": {os.fspath(name): os.fspath(value) for name, value in environment.items()},
            "python_path": search.split(os.pathsep) if search else [],
            "new_session": bool(start_new_session),
        }
        given = [mine if mine != -1 else number for number, mine in enumerate((p2cread, c2pwrite, errwrite))]
        self.pid = self._server.fork(request, given)
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]


class Processes:
    """Starts processes, and kills those that are left when `end` is called."""

    def __init__(self) -> None:
        # By the variables that are read at the start. The first program with others than here gets a new interpreter,
        # and None is kept; the second one is worth a server.
        here = _read_at_start(os.environ)
        self._servers: dict[frozenset[tuple[str, str]], _ForkServer | None] = {frozenset(here.items()): None}
        self._started: list[subprocess.Popen[Any]] = []

    def python(self, *arguments: Any, fresh: bool = False, **settings: Any) -> subprocess.CompletedProcess[Any]:
        """Runs Python to its end.

        Args:
          *arguments: what follows `python` on a command line, such as `"-c", program`.
          fresh: start a new interpreter, for programs that measure the start, or that end in a special way.
          **settings: of `subprocess.run`. Without them, output is captured as text, and the program may take 150
            seconds.

        Returns:
          What `subprocess.run` returns.
        """
        return self._run(self.start_python, arguments, {"fresh": fresh, **settings})

    def run(self, *command: Any, **settings: Any) -> subprocess.CompletedProcess[Any]:
        """Runs another program, such as a compiler, to its end. As `python` does."""
        return self._run(self.start, command, settings)

    def start_python(self, *arguments: Any, fresh: bool = False, **settings: Any) -> subprocess.Popen[Any]:
        """Starts Python. The arguments are those of `python`, the settings those of `subprocess.Popen`."""
        texts = list(map(os.fspath, arguments))
        is_plain = texts[0] in ("-c", "-m") or not texts[0].startswith("-")
        server = self._server_for(settings) if is_plain and not fresh else None
        if server is None:
            return self.start(sys.executable, *texts, **settings)
        process = _ForkedPopen(server, texts, **settings)
        self._started.append(process)
        return process

    def start(self, *command: Any, **settings: Any) -> subprocess.Popen[Any]:
        """Starts another program. The settings are those of `subprocess.Popen`."""
        process = subprocess.Popen(list(map(os.fspath, command)), **settings)
        self._started.append(process)
        return process

    def end(self) -> None:
        """Kills the processes that still run."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.wait()
        for server in self._servers.values():
            if server is not None:
                server.end()

    def _server_for(self, settings: dict[str, Any]) -> _ForkServer | None:
        """The server that forks a program with these settings; None if it is to get a new interpreter."""
        if not sys.platform.startswith("linux") or os.environ.get("FASTSUP_TEST_FORK") == "0":
            return None
        if {"executable", "preexec_fn", "pass_fds", "process_group", "umask", "user", "group"} & set(settings):
            return None
        at_start = _read_at_start(settings.get("env") or os.environ)
        key = frozenset(at_start.items())
        if key not in self._servers:
            self._servers[key] = None
        elif self._servers[key] is None:
            self._servers[key] = _ForkServer(at_start)
        return self._servers[key]

    def _run(self, start: Any, command: Sequence[Any], settings: dict[str, Any]) -> subprocess.CompletedProcess[Any]:
        timeout = settings.pop("timeout", _TIMEOUT_SECS)
        check = settings.pop("check", False)
        settings.pop("capture_output", None)
        given = settings.pop("input", None)
        if given is not None:
            settings["stdin"] = subprocess.PIPE
        settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **settings}
        process = start(*command, **settings)
        try:
            output, errors = process.communicate(given, timeout)
        except subprocess.TimeoutExpired as expired:
            process.kill()
            output, errors = process.communicate()
            raise subprocess.TimeoutExpired(process.args, timeout, output, errors) from expired
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            self._started.remove(process)
        done = subprocess.CompletedProcess(process.args, process.returncode, output, errors)
        if check:
            done.check_returncode()
        return done


@pytest.fixture(scope="session")
def processes() -> Iterator[Processes]:
    """Starts processes: see `Processes`. Those that tests have left are killed when all tests have run."""
    started = Processes()
    yield started
    started.end()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "processes" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.process)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if item.get_closest_marker("process"):
        return (yield)
    execute, fork = subprocess.Popen._execute_child, os.fork  # type: ignore[attr-defined]

    def guarded_execute(self: Any, *args: Any) -> None:
        _check_caller()
        execute(self, *args)

    def guarded_fork() -> int:
        _check_caller()
        return fork()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "_execute_child", guarded_execute)
        patch.setattr(os, "fork", guarded_fork)
        return (yield)


def _check_caller() -> None:
    """Raises an error unless a library starts the process, once for all tests.

    fastsup tries so whether functions can be lifted. `platform` asks for the processor when TensorFlow is imported.
    """
    frame: Any = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") in ("fastsup.common.isolated_child", "platform"):
            return
        frame = frame.f_back
    raise RuntimeError("this test starts a process: take it from the fixture `processes`, or request the fixture")
