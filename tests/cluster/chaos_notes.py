"""What the tasks of chaos.py note for its keeper: in files that survive a task's SIGKILL."""

from __future__ import annotations

import mmap
import os
import struct
import time
from typing import NamedTuple

# Steps of the task so far, in all its lives; the global step; the clock at the last step.
_LAYOUT = struct.Struct("qqd")


class Noted(NamedTuple):
    """What a task has noted.

    Args:
      steps: its own steps, in all its lives.
      global_step: the global step that it has read last.
      at: `time.monotonic()` of its last step, which is one clock for all processes of a machine.
    """

    steps: int
    global_step: int
    at: float


class Notes:
    """The steps of one task, in a file that is mapped into memory.

    Args:
      path: the file. It is made if there is none.
    """

    def __init__(self, path: str) -> None:
        if not os.path.exists(path):
            with open(path, "wb") as file:
                file.write(_LAYOUT.pack(0, -1, 0.0))
        with open(path, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _LAYOUT.size)

    def add_step(self, global_step: int) -> None:
        """Notes one more step."""
        _LAYOUT.pack_into(self._memory, 0, self.read().steps + 1, global_step, time.monotonic())

    def read(self) -> Noted:
        """Reads what the task has noted."""
        return Noted(*_LAYOUT.unpack_from(self._memory, 0))


def note_line(path: str, what: str, step: int) -> None:
    """Appends "WHAT STEP" to a journal, whole, and flushes it to the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, f"{what} {step}\n".encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
