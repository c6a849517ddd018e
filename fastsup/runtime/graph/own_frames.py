"""Frames of fastsup in TensorFlow's errors: hidden, as TensorFlow hides its own.

An error of an operation says where the program has made it: "defined at". Without this, that was a line of fastsup for
all that is made in a call of fastsup, such as the operations of a saver.
"""

from __future__ import annotations

import os
from pathlib import Path

from tensorflow.python.util import tf_stack, traceback_utils

__all__ = ["hide_own_frames"]

_FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))


class _OwnFrames(tf_stack.SentinelFilter):  # type: ignore[misc]
    """The filter that every thread has at first: TensorFlow's lets all frames pass."""

    def __init__(self) -> None:
        super().__init__()
        self._filenames = frozenset(map(str, Path(_FOLDER).rglob("*.py")))
        self.update()

    def get_filtered_filenames(self) -> frozenset[str]:
        return self._filenames


def hide_own_frames() -> None:
    """Leaves the files of fastsup out of the stacks of operations, and of the tracebacks that TensorFlow filters."""
    own = _OwnFrames()
    stacks = tf_stack._source_filter_stacks
    stacks.default_factory = lambda: [own]
    for stack in list(stacks.values()):
        if type(stack[0]) is tf_stack.SentinelFilter:
            stack[0] = own
    traceback_utils._EXCLUDED_PATHS += (_FOLDER + os.sep,)
