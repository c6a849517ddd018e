"""A cluster of processes on this machine, for the tests that kill some of them. Loaded by its path."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import fastsup

# The processes get the fastsup that this one has. They import nothing from the folder that the tests are run in.
_PYTHONPATH = os.pathsep.join(filter(None, (str(Path(fastsup.__file__).parents[1]), os.environ.get("PYTHONPATH"))))
_ENVIRONMENT = {"PYTHONPATH": _PYTHONPATH, "TF_CPP_MIN_LOG_LEVEL": "1", "CUDA_VISIBLE_DEVICES": "-1"}
_TAIL_CHARACTERS = 4000
_LOOK_SECS = 0.05


def free_ports(number: int) -> list[int]:
    """Ports of this machine that nobody listens at, and that the system gives to nobody who doesn't ask for them.

    From those that it does give, a port of a task that was killed might go to another program's server, which tasks
    that look for the killed one would then talk to.
    """
    with ExitStack() as stack:
        found: list[int] = []
        while len(found) < number:
            port = random.randrange(10_000, 32_000)
            try:
                stack.enter_context(socket.socket()).bind(("localhost", port))
            except OSError:
                continue
            found.append(port)
        return found


def start_python(*arguments: str, **settings: Any) -> subprocess.Popen[Any]:
    """Starts Python. The settings are those of `subprocess.Popen`."""
    return subprocess.Popen([sys.executable, *arguments], **settings)


class Cluster:
    """Processes that run one program, each as another task. A `with` block kills what is left of them at its end.

    It prints the end of each log then: pytest shows that when the test failed. (A fixture that holds the block doesn't
    hear of the failure, so the block couldn't tell.)

    Args:
      folder: empty directory for the logs; "model" in it is the model directory.
      program: path of the program. It gets the model directory and the settings, a JSON object, as arguments.
      tasks: names of the tasks, such as "worker-1". An evaluator isn't made part of the cluster.
      starter: starts Python, as `start_python` does.
      **settings: what the program is told.
    """

    def __init__(
        self,
        folder: Path,
        program: Path,
        tasks: Iterable[str],
        starter: Callable[..., subprocess.Popen[Any]] = start_python,
        **settings: Any,
    ) -> None:
        self.folder = folder
        self.model_dir = folder / "model"
        self._starter = starter
        self._arguments = [str(program), str(self.model_dir), json.dumps(settings)]
        self._processes: dict[str, subprocess.Popen[Any]] = {}
        self.tasks = list(tasks)
        members = [task for task in self.tasks if not task.startswith("evaluator")]
        self.cluster: dict[str, list[str]] = {}
        for task, port in zip(members, free_ports(len(members)), strict=True):
            self.cluster.setdefault(task.partition("-")[0], []).append(f"localhost:{port}")

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exception: object) -> None:
        running = [process for process in self._processes.values() if process.poll() is None]
        for process in running:
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGUSR1)  # The program writes where its threads are.
        if running:
            time.sleep(0.5)
        for process in running:
            process.kill()
            process.wait()
        for task, process in self._processes.items():
            print(f"=== {task}, exit code {process.returncode}\n{self.log(task)[-_TAIL_CHARACTERS:]}")

    def start(self, *tasks: str) -> None:
        """Starts tasks, or starts them again. The log goes on where it was."""
        for task in tasks or self.tasks:
            role, _, index = task.partition("-")
            tf_config = {"cluster": self.cluster, "task": {"type": role, "index": int(index)}}
            environment = {**os.environ, **_ENVIRONMENT, "TF_CONFIG": json.dumps(tf_config)}
            with open(self.folder / f"{task}.log", "ab") as log:
                self._processes[task] = self._starter(
                    *self._arguments, cwd=self.folder, env=environment, stdout=log, stderr=log
                )

    def kill(self, task: str) -> None:
        """Kills a task that runs."""
        process = self._processes[task]
        assert process.poll() is None, f"{task} had ended before it could be killed"
        process.send_signal(signal.SIGKILL)
        process.wait()

    def signal(self, task: str, number: int) -> None:
        """Sends a signal to a task that runs."""
        process = self._processes[task]
        assert process.poll() is None, f"{task} had ended before it could be sent signal {number}"
        process.send_signal(number)

    def exit_code(self, task: str) -> int | None:
        """The exit code of a task's last process; None while it runs."""
        return self._processes[task].poll()

    def hurry(self) -> None:
        """Lets the program train as fast as it can, to its end."""
        (self.folder / "hurry").touch()

    def log(self, task: str) -> str:
        """What a task has written so far."""
        path = self.folder / f"{task}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def newest_step(self) -> int:
        """The step of the newest checkpoint, by the state file; -1 if there is none."""
        state = self.model_dir / "checkpoint"
        found = re.match(r'model_checkpoint_path: ".*-(\d+)"', state.read_text()) if state.exists() else None
        return int(found[1]) if found else -1

    def wait_for(self, what: str, condition: Callable[[], Any], within: float = 60) -> None:
        """Returns when a condition holds; fails if it takes too long, or if a task fails first."""
        deadline = time.monotonic() + within
        while not condition():
            failed = [task for task, process in self._processes.items() if (process.poll() or 0) > 0]
            assert not failed, f"{failed} failed while there was a wait for {what}"
            assert time.monotonic() < deadline, f"{what}: not within {within} s"
            time.sleep(_LOOK_SECS)

    def wait_for_line(self, task: str, text: str, within: float = 60) -> None:
        """Returns when a task has written something."""
        self.wait_for(f"{text!r} from {task}", lambda: text in self.log(task), within)

    def exit_codes(self, tasks: Iterable[str], within: float) -> dict[str, int | None]:
        """The exit codes of tasks, once all of them have ended; None for one that hasn't."""
        deadline = time.monotonic() + within
        tasks = list(tasks)
        while any(self._processes[task].poll() is None for task in tasks) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECS)
        return {task: self._processes[task].poll() for task in tasks}
