"""Frames of fastsup in TensorFlow's errors: hidden, as TensorFlow hides its own.

An operation's error contains the place of its creation in the program: "defined at". Without this, that was a line of
fastsup for all that is made in a call of fastsup, such as the operations of a saver.
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
    """The filter that every thread has at first: TensorFlow's lets all frames pass."""

    def __init__(self) -> None:
        super().__init__()
        self._filenames = frozenset(map(str, Path(_FOLDER).rglob("*.py")))
        self.update()

    def get_filtered_filenames(self) -> frozenset[str]:
        return self._filenames


def hide_own_frames() -> None:
    """Leaves the files of fastsup out of the stacks of operations, and of the tracebacks that TensorFlow filters."""
    own = _FramesOfPackage()
    stacks = tf_stack._source_filter_stacks
    stacks.default_factory = lambda: [own]
    for stack in list(stacks.values()):
        if type(stack[0]) is tf_stack.SentinelFilter:
            stack[0] = own
    traceback_utils._EXCLUDED_PATHS += (_FOLDER,)


class OwnFrames(tf_stack.StackTraceFilter):  # type: ignore[misc]
    """A `with` block in which operations are made without those lines of fastsup that are on the stack now."""

    def __init__(self) -> None:
        super().__init__()
        self._names: set[str] = set()
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename.startswith(_FOLDER):
                self._names.add(frame.f_code.co_filename)
            frame = frame.f_back

    def get_filtered_filenames(self) -> Any:
        """Returns the names of the files whose lines TensorFlow leaves out."""
        return self._names | self.parent.get_filtered_filenames()
