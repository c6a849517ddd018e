"""Records TensorFlow and Keras while a profiler is on. fastsup's own code calls its probe instead."""

from __future__ import annotations

from fastsup.profile.recording.watch import function_calls, keras_passes, tracing
from fastsup.profile.recording.watch.replacements import Replacements

__all__ = ["LibraryWatch"]


_REPLACEMENTS = Replacements(
    {
        "keras": keras_passes.replacements,
        "tf_keras": keras_passes.replacements_of_keras_2,
        "tensorflow.python.framework.func_graph": tracing.replacements,
        "tensorflow.python.eager.polymorphic_function.polymorphic_function": function_calls.replacements,
    }
)


class LibraryWatch:
    """Observes libraries from `start` to `stop`. Each may be called twice."""

    def __init__(self) -> None:
        self._started = False

    def start(self) -> None:
        """Starts to observe, now or as soon as the program imports a library."""
        if not self._started:
            self._started = True
            _REPLACEMENTS.start()

    def stop(self) -> None:
        """Stops observing, and restores the libraries unless another profiler is on."""
        if self._started:
            self._started = False
            _REPLACEMENTS.stop()
