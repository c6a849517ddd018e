"""Child processes of the tests: what they print, and how they end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).with_name("programs")
COUNT = Path(__file__).with_name("count_classes.py")
_TIMEOUT_SECS = 280


def run(*command: Any, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs Python with arguments."""
    return subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=folder,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECS,
        check=False,
    )


def result(done: subprocess.CompletedProcess[str]) -> Any:
    """The last line of a program that has ended well, which is JSON."""
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def of_source(source: str, *arguments: Any) -> Any:
    """The same for a program that is given as text."""
    return result(run("-c", textwrap.dedent(source), *arguments))


def outcome(
    folder: Path, name: str, *options: Any, arguments: tuple[str, ...] = ("{}",), **environment: str
) -> tuple[Any, Any]:
    """What a program prints under `python -m fastsup run`, and which of TensorFlow's own classes were made in it.

    Args:
      folder: an empty folder. In the program's arguments, "{}" is a folder in it.
      name: name of the program.
      *options: options of the command.
      arguments: arguments of the program.
      **environment: environment variables.
    """
    made, place = folder / "made.json", folder / "place"
    place.mkdir(exist_ok=True)
    given = (argument.format(place) for argument in arguments)
    done = run(COUNT, made, "run", *options, PROGRAMS / f"{name}.py", *given, **environment)
    return result(done), json.loads(made.read_text())
