"""The head of a report: the script and its arguments, the date, the versions, the machine."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import time
from dataclasses import dataclass, field

from fastsup.common.versions import tensorflow_version, version_of

__all__ = ["Head", "cores", "head_of"]


@dataclass(frozen=True)
class Head:
    """The head of a report.

    Args:
      script: the script, as it was called.
      arguments: its arguments.
      date: date and time of the profile, with the zone: "2026-11-23 10:15:00 +0000".
      versions: by name, of fastsup, TensorFlow, Python and NumPy, as far as they are installed.
      machine: processor, number of cores and system.
    """

    script: str = ""
    arguments: tuple[str, ...] = ()
    date: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    machine: str = ""

    def lines(self) -> list[str]:
        """Returns the head as lines of text, without those that would be empty."""
        command = " ".join([self.script, *map(shlex.quote, self.arguments)]) if self.script else ""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return [line for line in (", ".join(filter(None, (command, self.date))), versions, self.machine) if line]


def head_of() -> Head:
    """Returns the head for a profile of this process, now."""
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
    """Returns the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        return ""
    return names[0] if names else ""
