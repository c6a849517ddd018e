"""What is recorded of `fastsup.function`: its calls, and how their graphs are lifted."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import ModuleType

from fastsup.profile.recording.phases import LIFTING
from fastsup.profile.recording.watch.replacements import Replacement
from fastsup.profile.recording.watch.timed import timed

__all__ = ["replacements"]


def replacements(module: ModuleType) -> Iterator[Replacement]:
    """What stands in the place of methods of functions while a profiler is on.

    Args:
      module: the module that has the class.
    """
    from fastsup.eager import calls
    from fastsup.profile.recording.watch.function_probe import (
        recorded_by_tensorflow,
        recorded_elsewhere,
        recorder_of_calls,
    )

    yield calls, "call_recorder", lambda _: recorder_of_calls()
    yield module.Function, "_call_elsewhere", recorded_elsewhere
    yield module.Function, "_call_tensorflow", recorded_by_tensorflow
    yield module.Function, "_lift", functools.partial(timed, phase=LIFTING)
