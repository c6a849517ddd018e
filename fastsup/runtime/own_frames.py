"""Hides frames of fastsup in TensorFlow's errors, as TensorFlow hides its own.

An operation's error contains the place of its creation in the program ("defined at"). Without this module, this would
be a line of fastsup for everything created in a fastsup call, such as a saver's operations.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from tensorflow.python.util import tf_stack, traceback_utils

__all__ = ["OwnFrames", "hide_own_frames"]

_FOLDER = os.path.dirname(os.path.dirname(__file__)) + os.sep


class _FramesOfPackage(tf_stack.SentinelFilter):  # type: ignore[misc]
    """The initial filter of every thread. TensorFlow's initial filter shows all frames."""

    def __init__(self) -> None:
        super().__init__()
        self._filenames = frozenset(map(str, Path(_FOLDER).rglob("*.py")))
        self.update()

    def get_filtered_filenames(self) -> frozenset[str]:
        return self._filenames


def hide_own_frames() -> None:
    """Removes fastsup's files from the stacks of operations, and from the tracebacks that TensorFlow filters."""
    own = _FramesOfPackage()
    stacks = tf_stack._source_filter_stacks
    stacks.default_factory = lambda: [own]
    for stack in list(stacks.values()):
        if type(stack[0]) is tf_stack.SentinelFilter:
            stack[0] = own
    traceback_utils._EXCLUDED_PATHS += (_FOLDER,)


class OwnFrames(tf_stack.StackTraceFilter):  # type: ignore[misc]
    """A `with` block in which operations are created without the fastsup lines that are currently on the stack."""

    def __init__(self) -> None:
        super().__init__()
        self._names: set[str] = set()
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename.startswith(_FOLDER):
                self._names.add(frame.f_code.co_filename)
            frame = frame.f_back

    def get_filtered_filenames(self) -> Any:
        """Returns the names of the files whose lines TensorFlow omits."""
        return self._names | self.parent.get_filtered_filenames()
