"""Has all that a profiler records of the program's libraries recorded while it is on."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import ModuleType

from fastsup.profile.recording.phases import LIFTING
from fastsup.profile.recording.watch import keras_passes, tracing
from fastsup.profile.recording.watch.probes import timed
from fastsup.profile.recording.watch.replacements import Replacement, Replacements

__all__ = ["LibraryWatch"]


def _replacements_of_functions(module: ModuleType) -> Iterator[Replacement]:
    """What stands in the place of methods of `fastsup.function` while a profiler is on."""
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


_REPLACEMENTS = Replacements(
    {
        "keras": keras_passes.replacements,
        "tf_keras": keras_passes.replacements_of_keras_2,
        "fastsup.keras.inputs": keras_passes.replacements_of_arrays,
        "fastsup.eager.function": _replacements_of_functions,
        "tensorflow.python.framework.func_graph": tracing.replacements,
    }
)


class LibraryWatch:
    """Watches libraries from `start` to `stop`, each of which may be called twice."""

    def __init__(self) -> None:
        self._started = False

    def start(self) -> None:
        """Begins to watch: now, or as soon as the program imports a library."""
        if not self._started:
            self._started = True
            _REPLACEMENTS.start()

    def stop(self) -> None:
        """Ends watching, and restores the libraries unless another profiler is on."""
        if self._started:
            self._started = False
            _REPLACEMENTS.stop()
