"""What a profile is of: the script and its arguments, the date, the versions, the machine."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata
from importlib.util import find_spec

__all__ = ["Head", "cores", "head_of", "tensorflow_version", "version_of"]

# TensorFlow is distributed under several names.
TENSORFLOWS = ("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tensorflow-rocm")


@dataclass(frozen=True)
class Head:
    """What a profile is of.

    Args:
      script: the script, as it was called.
      arguments: its arguments.
      date: when the profile was made, with the zone: "2026-11-23 10:15:00 +0000".
      versions: by name: fastsup, TensorFlow, Python, NumPy. What isn't installed is left out.
      machine: processor, cores and system.
    """

    script: str = ""
    arguments: tuple[str, ...] = ()
    date: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    machine: str = ""

    def lines(self) -> list[str]:
        """The head as text; no line of what isn't known."""
        command = " ".join([self.script, *map(shlex.quote, self.arguments)]) if self.script else ""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return [line for line in (", ".join(filter(None, (command, self.date))), versions, self.machine) if line]


def head_of() -> Head:
    """The head of a profile of this process, now."""
    import fastsup

    versions = {"fastsup": fastsup.__version__}
    tensorflow = tensorflow_version()
    if tensorflow is not None:
        versions["TensorFlow"] = tensorflow
    versions["Python"] = platform.python_version()
    numpy = version_of("numpy")
    if numpy is not None:
        versions["NumPy"] = numpy
    parts = (_processor(), f"{cores()} core{'s' if cores() > 1 else ''}", platform.platform())
    machine = ", ".join(filter(None, parts))
    script = sys.argv[0] if sys.argv else ""
    return Head(script, tuple(sys.argv[1:]), time.strftime("%Y-%m-%d %H:%M:%S %z"), versions, machine)


def cores() -> int:
    """How many processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def version_of(name: str) -> str | None:
    """The installed version of a distribution, or None.

    Args:
      name: the distribution's name.
    """
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def tensorflow_version() -> str | None:
    """The version of TensorFlow: of the one that is imported, or else of the one that is installed; or None."""
    imported = getattr(sys.modules.get("tensorflow"), "__version__", None)
    return imported or next(filter(None, map(version_of, _tensorflow_distributions())), None)


def _tensorflow_distributions() -> Iterator[str]:
    yield from TENSORFLOWS
    # A vendor's build, under a name of its own. To read what all distributions bring takes long.
    if find_spec("tensorflow") is not None:
        yield from metadata.packages_distributions().get("tensorflow", ())


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        return ""
    return names[0] if names else ""
