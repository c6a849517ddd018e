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

sys.path.append(str(Path(__file__).parents[1] / "support"))

from links import Link

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
      linked: pairs of tasks that reach each other through a `Link` for each direction, which `cut` cuts.
      preloads: paths of the libraries of tests/faults, with which `fail_files` and `set_clock` work.
      **settings: what the program is told.
    """

    def __init__(
        self,
        folder: Path,
        program: Path,
        tasks: Iterable[str],
        starter: Callable[..., subprocess.Popen[Any]] = start_python,
        linked: Iterable[tuple[str, str]] = (),
        preloads: Iterable[Path] = (),
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
        self._preload = " ".join(map(str, preloads))
        # The links by the task that connects and the one that it connects to, with their ports.
        self._links: dict[tuple[str, str], tuple[Link, int]] = {}
        for first, second in linked:
            for pair in ((first, second), (second, first)):
                if pair[1] in members:
                    (port,) = free_ports(1)
                    self._links[pair] = Link(port, self._port_of(pair[1])), port

    def _port_of(self, task: str) -> int:
        role, _, index = task.partition("-")
        return int(self.cluster[role][int(index)].rpartition(":")[2])

    def cluster_of(self, task: str) -> dict[str, list[str]]:
        """The cluster as a task sees it: others that it is linked to have the addresses of the links."""
        seen = {role: list(addresses) for role, addresses in self.cluster.items()}
        for (source, target), (_, port) in self._links.items():
            if source == task:
                role, _, index = target.partition("-")
                seen[role][int(index)] = f"localhost:{port}"
        return seen

    def move(self, task: str) -> None:
        """Gives a task another port. Tasks that are started later see it."""
        role, _, index = task.partition("-")
        (port,) = free_ports(1)
        self.cluster[role][int(index)] = f"localhost:{port}"

    def cut(self, first: str, second: str) -> None:
        """Lets nothing through between two linked tasks any longer, and closes nothing."""
        for link in self._between(first, second):
            link.cut()

    def reset(self, first: str, second: str) -> None:
        """Closes the connections between two linked tasks with a reset, and refuses new ones."""
        for link in self._between(first, second):
            link.reset()

    def mend(self, first: str, second: str) -> None:
        """Ends what `cut` and `reset` have begun."""
        for link in self._between(first, second):
            link.mend()

    def _between(self, first: str, second: str) -> list[Link]:
        found = [link for pair, (link, _) in self._links.items() if set(pair) == {first, second}]
        assert found, f"{first} and {second} aren't linked"
        return found

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
        for link, _ in self._links.values():
            link.close()
        for task, process in self._processes.items():
            print(f"=== {task}, exit code {process.returncode}\n{self.log(task)[-_TAIL_CHARACTERS:]}")

    def start(self, *tasks: str) -> None:
        """Starts tasks, or starts them again. The log goes on where it was."""
        for task in tasks or self.tasks:
            role, _, index = task.partition("-")
            tf_config = {"cluster": self.cluster_of(task), "task": {"type": role, "index": int(index)}}
            environment = {**os.environ, **_ENVIRONMENT, "TF_CONFIG": json.dumps(tf_config)}
            environment.update(self._preload_environment(task))
            with open(self.folder / f"{task}.log", "ab") as log:
                self._processes[task] = self._starter(
                    *self._arguments, cwd=self.folder, env=environment, stdout=log, stderr=log
                )

    def _preload_environment(self, task: str) -> dict[str, str]:
        if not self._preload:
            return {}
        if not self._clock_file(task).exists():
            self.set_clock(task, 0)
        return {
            "LD_PRELOAD": self._preload,
            "FAULTS_DIR": str(self.model_dir),
            "FAULTS_SPEC": str(self.folder / f"{task}.faults"),
            "FAULTS_LOG": str(self.folder / f"{task}.operations"),
            "CLOCK_FILE": str(self._clock_file(task)),
        }

    def _clock_file(self, task: str) -> Path:
        return self.folder / f"{task}.clock"

    def set_clock(self, task: str, shift_secs: int) -> None:
        """Sets a task's clock to the time of this machine and some seconds. It stays so when the task starts again."""
        with open(self._clock_file(task), "r+b" if self._clock_file(task).exists() else "wb") as file:
            file.write(shift_secs.to_bytes(8, sys.byteorder, signed=True))

    def fail_files(self, task: str, *faults: str) -> None:
        """Has file operations of a task fail in the model directory. No fault: they succeed again.

        Args:
          task: the task.
          *faults: lines for tests/faults/shim.c. Operations are counted from now on.
        """
        new = self.folder / f"{task}.faults.new"
        new.write_text("\n".join(faults))
        new.rename(self.folder / f"{task}.faults")

    def failed_files(self, task: str) -> list[str]:
        """The file operations of a task that have failed so far: "operation path"."""
        log = self.folder / f"{task}.operations"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        failed = [line.split("\t") for line in lines if line.startswith("failed\t")]
        return [f"{operation} {path.replace(f'{self.model_dir}/', '')}" for _, path, operation in failed]

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
