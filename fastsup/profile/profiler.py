"""The public profiler, which is a recorder with methods that show and write the recording."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TextIO

from fastsup.common.files import write_whole
from fastsup.core.checks import suggest_keywords
from fastsup.profile.export import as_chrome_trace, as_csv, as_json
from fastsup.profile.numbers import head_of
from fastsup.profile.page import as_html, as_html_part
from fastsup.profile.program import Program
from fastsup.profile.recording.device_wait import DeviceWait, wait_for_devices
from fastsup.profile.recording.recorder import ManualClock, Recorder
from fastsup.profile.recording.watch.library_watch import LibraryWatch
from fastsup.profile.report import Report, report_of
from fastsup.profile.summaries import ProfileSummaries
from fastsup.profile.table import as_text, print_table

if TYPE_CHECKING:
    from fastsup.eager.function_notes import FunctionNote
    from fastsup.profile.recording.watch.function_probe import FunctionProbe

__all__ = ["HookProfiler", "tensorflow_call_ns"]

_CALLS = 100
_BEFORE = 30
# The result of tensorflow_call_ns, which is measured once per process.
_measured: list[float] = []


def tensorflow_call_ns() -> float:
    """Measures with a small function how many nanoseconds lifting saves per TensorFlow call."""
    if not _measured:
        import tensorflow as tf

        import fastsup
        from fastsup.common.interpreter_end import no_interpreter_exit
        from fastsup.core.probe import nothing_recorded
        from fastsup.eager.function import tf_function

        with no_interpreter_exit, nothing_recorded():
            one = tf.constant(1.0)
            plain = tf_function(lambda value: value + one)
            lifted = fastsup.function(plain, executor="inline", fallback="silent")
            spared = _median_ns(plain, one) - _median_ns(lifted, one)
            _measured.append(max(spared, 0.0) if lifted.lifted else 0.0)
    return _measured[0]


def _median_ns(function: Callable[[Any], Any], argument: Any) -> float:
    for _ in range(_BEFORE):
        function(argument)
    times = []
    for _ in range(_CALLS):
        started = time.perf_counter_ns()
        function(argument)
        times.append(time.perf_counter_ns() - started)
    return statistics.median(times)


Path = str | os.PathLike[str]


class HookProfiler(Recorder):
    """Records the cost of each hook, per call and phase, and of the rest of a training loop.

    Pass it as `profiler=` to a session, a Supervisor or a StepLoop. Or use it as a context manager, which records all
    sessions and loops of the program that don't have their own profiler:

        with fastsup.HookProfiler() as profiler:
            train()
        print(profiler.table())

    A profiler without sessions costs nothing. You can read its report while it records.

    Args:
      skip_steps: number of steps to skip at the start, such as steps that initialize kernels.
      step_markers: Whether to mark steps for TensorFlow's own profiler (`tf.profiler.experimental.Trace`).
      clock: a `fastsup.profile.recording.recorder.ManualClock` for tests, or None for the machine's monotonic clock.

    Raises:
      TypeError: If `skip_steps` isn't an integer, or `clock` isn't a clock.
      ValueError: If `skip_steps` is negative, or doesn't fit into 64 bits.
      ImportError: If `step_markers` is True, and TensorFlow isn't installed.
    """

    @suggest_keywords
    def __init__(self, skip_steps: int = 0, step_markers: bool = False, clock: ManualClock | None = None) -> None:
        if step_markers and find_spec("tensorflow") is None:
            raise ImportError(
                "step_markers require TensorFlow's profiler, which isn't installed: pip install 'fastsup[cpu]'."
            )
        super().__init__(skip_steps, step_markers, clock)
        # The command that runs the program sets this.
        self.program: Program | None = None
        self._head = head_of()
        self._summaries: dict[str, ProfileSummaries] = {}
        self._libraries = LibraryWatch()
        # The probe of the calls to each `fastsup.function`, by the function's id.
        self._function_probes: dict[int, FunctionProbe] = {}

    def prepare(self, hooks: Iterable[Any] | None, session: Any) -> None:
        """Prepares to record a session, by measuring once the cost of a fetched value in a separate session."""
        if session is None:
            return
        from fastsup.common.interpreter_end import no_interpreter_exit
        from fastsup.profile.recording.recorded_sessions import value_cost_ns

        self.description_guard = no_interpreter_exit
        if hooks is not None and not self.value_ns:
            self.value_ns = value_cost_ns()

    def _session_info_of(self, session: Any) -> Callable[[], dict[str, Any]]:
        from fastsup.profile.recording.recorded_sessions import session_info_of

        return session_info_of(session)

    def _wait_of_loops(self) -> DeviceWait | None:
        return wait_for_devices()

    def _watch(self, hooks: Iterable[Any]) -> Callable[[], None]:
        from fastsup.profile.recording.recorded_sessions import watch_saves

        return watch_saves(hooks)

    def function_probe(self, function: Any) -> FunctionProbe:
        """Returns the probe of a function's calls."""
        probe = self._function_probes.get(id(function))
        if probe is None:
            from fastsup.profile.recording.watch.function_probe import new_function_probe

            probe = new_function_probe(self, function, sys._getframe(1), self._function_probes)
        return probe

    def note_function(self, note: FunctionNote) -> None:
        """Records the status of a function, for the program's report."""
        super().note_function(note)
        if self.program is not None:
            self.program.note_function(note)

    def step_marker(self) -> AbstractContextManager[Any]:
        """Returns a context manager that marks the current step for TensorFlow's own profiler."""
        if "tensorflow" not in sys.modules:
            return super().step_marker()  # TensorFlow's profiler can't be running.
        import tensorflow as tf

        return tf.profiler.experimental.Trace("step", step_num=self.steps_begun, _r=1)  # type: ignore[no-any-return]

    def start(self, replaceable: bool = False) -> None:
        """Records the program's sessions, loops and Keras passes until `stop`. See `Recorder.start`."""
        super().start(replaceable)
        self._libraries.start()

    def stop(self) -> None:
        """Stops recording the program. Does nothing if the profiler isn't on."""
        self._libraries.stop()
        super().stop()
        self._function_probes.clear()

    def __enter__(self) -> HookProfiler:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def is_of(self, script: str, arguments: Iterable[str]) -> None:
        """Sets the script that the report names, instead of `sys.argv` at the profiler's creation.

        Args:
          script: path of the script.
          arguments: its arguments.
        """
        self._head = replace(self._head, script=script, arguments=tuple(arguments))

    def report(self) -> Report:
        """Returns the recording so far, as numbers."""
        program = self.program
        head = replace(self._head, versions=head_of().versions)
        if program is None:
            return report_of(self, head, call_cost=tensorflow_call_ns)
        timeline = program.timeline.phases()
        return report_of(self, head, timeline, program.plain_sessions, program.functions, tensorflow_call_ns)

    def table(self) -> str:
        """Returns the recording so far, as a table of at most 80 columns without colors."""
        return as_text(self.report())

    def print_table(self, file: TextIO | None = None) -> None:
        """Prints the table, with colors if `file` is a terminal and rich is installed.

        Args:
          file: text stream. If None, `sys.stdout`.
        """
        print_table(self.report(), file or sys.stdout)

    def write_json(self, path: Path) -> None:
        """Writes the recording as JSON. See docs/profile-rows.md for the schema.

        Args:
          path: the file, which is written completely or not at all. Paths such as "gs://..." need TensorFlow.

        Raises:
          OSError: If the file can't be written.
          tf.errors.OpError: If the file can't be written, on a file system that isn't local.
        """
        _write(path, as_json(self.report()))

    def write_csv(self, path: Path) -> None:
        """Writes the rows of the table as CSV. Arguments and errors are those of `write_json`."""
        _write(path, as_csv(self.report()))

    def write_trace(self, path: Path) -> None:
        """Writes the spans of a sample of steps as a Chrome trace. Arguments and errors are those of `write_json`."""
        _write(path, as_chrome_trace(self))

    def write_html(self, path: Path) -> None:
        """Writes a page without external resources. Arguments and errors are those of `write_json`."""
        _write(path, as_html(self.report(), self))

    def _repr_html_(self) -> str:
        """Returns the contents of `write_html`'s page, for notebooks."""
        return as_html_part(self.report(), self)

    def write_summaries(self, directory: Path) -> None:
        """Adds a point to the profile's curves in TensorBoard, and updates the table in its text tab.

        Call this periodically, such as every minute. Each call writes the cost of the steps since the last call for the
        same directory.

        Args:
          directory: directory of the event file, which is created if necessary. It may be a path such as "gs://...".

        Raises:
          ImportError: If TensorFlow isn't installed.
          tf.errors.OpError: If the directory can't be made, or the file can't be written.
        """
        path = os.fspath(directory)
        if path not in self._summaries:
            self._summaries[path] = ProfileSummaries(path)
        self._summaries[path].write(self.report())

    def __repr__(self) -> str:
        return f"<HookProfiler: {self.steps_begun} steps>"

    def __deepcopy__(self, memo: Any = None) -> HookProfiler:
        # A copy of an object that has a profiler, such as a RunConfig, has the same profiler.
        return self

    __copy__ = __deepcopy__

    def __reduce__(self) -> Any:
        raise TypeError("A HookProfiler can't be pickled: it may be recording. Pickle its report() instead.")


def _write(path: Path, text: str) -> None:
    if "://" in os.fspath(path):
        from fastsup.common import file_system

        file_system.write_whole(path, text)
    else:
        write_whole(path, text)
