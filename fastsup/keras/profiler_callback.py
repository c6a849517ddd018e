"""`fastsup.keras.ProfilerCallback`, which profiles one `fit`."""

from __future__ import annotations

import sys
import weakref
from typing import Any

from fastsup.core.checks import suggest_keywords
from fastsup.keras.callbacks import KerasCallback
from fastsup.profile.profiler import HookProfiler
from fastsup.profile.recording.watch.library_watch import LibraryWatch

__all__ = ["ProfilerCallback"]


class ProfilerCallback(KerasCallback):
    """Records the time of a `fit`, `evaluate` or `predict` call, and prints the table at the end.

        profile = fastsup.keras.ProfilerCallback()
        model.fit(x, y, callbacks=[profile])
        profile.profiler.write_html("profile.html")

    The table has a row for each method of each callback, for the step, the wait for input, tracing, and Keras's own
    code. It is also printed if the call fails. Later calls with the same object are added to it. While the callback
    exists, it replaces methods of Keras classes.

    Args:
      profiler: the `fastsup.HookProfiler` that records. If None, creates one.
      verbose: 1 prints the table, 0 prints nothing.

    Attributes:
      profiler: the profiler, whose methods show and write the recording.

    Raises:
      TypeError: If `profiler` is neither a HookProfiler nor None.
      ValueError: If `verbose` is neither 0 nor 1.
    """

    @suggest_keywords
    def __init__(self, profiler: HookProfiler | None = None, verbose: int = 1) -> None:
        super().__init__()
        if profiler is not None and not isinstance(profiler, HookProfiler):
            raise TypeError(
                f"profiler must be a fastsup.HookProfiler or None, got {profiler!r} of type {type(profiler).__name__}."
            )
        if verbose not in (0, 1):
            raise ValueError(f"verbose must be 0 or 1, got {verbose!r}.")
        self.profiler: HookProfiler = HookProfiler() if profiler is None else profiler
        self.verbose = verbose
        libraries = LibraryWatch()
        libraries.start()
        weakref.finalize(self, libraries.stop).atexit = False

    def on_profile_end(self) -> None:
        """Prints the table. Called when the recorded call has finished or failed."""
        if self.verbose:
            self.profiler.print_table(sys.stdout)

    def __deepcopy__(self, memo: Any = None) -> ProfilerCallback:
        # Copies share the profiler, because tuners copy callbacks.
        return ProfilerCallback(self.profiler, self.verbose)

    __copy__ = __deepcopy__

    def _repr_html_(self) -> str:
        return self.profiler._repr_html_()
