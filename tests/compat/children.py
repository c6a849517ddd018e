"""Child processes of the tests: what they print, and how they end."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import textwrap
from pathlib import Path
from typing import Any

from processes import Processes

_TIMEOUT_SECS = 280


class Children:
    """Starts programs.

    In those that are forked, `python -m fastsup run` finds TensorFlow imported, and installs fastsup at once. What a
    program says before it imports TensorFlow needs a new interpreter.

    Args:
      processes: starts the processes.
    """

    PROGRAMS = Path(__file__).with_name("programs")
    COUNT = Path(__file__).with_name("count_classes.py")

    def __init__(self, processes: Processes) -> None:
        self._processes = processes

    def run(
        self, *command: Any, folder: Path | None = None, fresh: bool = False, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs Python with arguments."""
        settings = {"cwd": folder, "env": {**os.environ, **environment}, "timeout": _TIMEOUT_SECS}
        return self._processes.python(*command, fresh=fresh, **settings)

    @staticmethod
    def result(done: subprocess.CompletedProcess[str]) -> Any:
        """The last line of a program that has ended well, which is JSON."""
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.strip().splitlines()[-1])

    def of_source(self, source: str, fresh: bool = False) -> Any:
        """The same for a program that is given as text."""
        return self.result(self.run("-c", textwrap.dedent(source), fresh=fresh))

    def outcome(
        self,
        folder: Path,
        name: str,
        *options: str,
        arguments: tuple[str, ...] = ("{}",),
        fresh: bool = False,
        **environment: str,
    ) -> tuple[Any, Any]:
        """What a program prints under `python -m fastsup run`, and which of TensorFlow's own classes were made in it.

        Args:
          folder: an empty folder. In the program's arguments, "{}" is a folder in it.
          name: name of the program.
          *options: options of the command.
          arguments: arguments of the program.
          fresh: start a new interpreter.
          **environment: environment variables.
        """
        made, place = folder / "made.json", folder / "place"
        place.mkdir(exist_ok=True)
        given = (argument.format(place) for argument in arguments)
        if "--tf1" in options and not fresh and importlib.util.find_spec("tf_keras") is not None:
            # The command sets it, too late where TensorFlow is imported already.
            environment = {"TF_USE_LEGACY_KERAS": "1", **environment}
        program = self.PROGRAMS / f"{name}.py"
        done = self.run(self.COUNT, made, "run", *options, program, *given, fresh=fresh, **environment)
        return self.result(done), json.loads(made.read_text())
