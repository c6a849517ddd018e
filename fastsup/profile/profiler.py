"""The profiler that programs use: a recorder, and ways to look at what it has recorded."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, TextIO

from fastsup.core.files import write_whole
from fastsup.core.recorder import ManualClock, Recorder
from fastsup.profile.export import as_csv, as_json
from fastsup.profile.head import head_of
from fastsup.profile.page import as_html
from fastsup.profile.program import Program
from fastsup.profile.report import Report, report_of
from fastsup.profile.table import as_text, print_table
from fastsup.profile.trace import as_chrome_trace

__all__ = ["HookProfiler"]

Path = str | os.PathLike[str]


class HookProfiler(Recorder):
    """Records what each hook costs, per call and phase, and where else the time of a training loop goes.

    Pass it as `profiler=` to a session, a Supervisor or a StepLoop; or use it as a context manager, which records every
    session and loop of the program that wasn't given one:

        with fastsup.HookProfiler() as profiler:
            train()
        print(profiler.table())

    A profiler without sessions costs nothing. What it has recorded can be looked at while it records.

    Args:
      skip_steps: steps at the start that are left out, such as those in which kernels are set up.
      step_markers: whether steps are marked for TensorFlow's own profiler (`tf.profiler.experimental.Trace`).
      clock: a `fastsup.core.recorder.ManualClock`, for tests; None for the machine's monotonic clock.

    Raises:
      TypeError: `skip_steps` is no integer, or `clock` no clock.
      ValueError: `skip_steps` is negative.
      ImportError: `step_markers` is asked for, and there is no TensorFlow.
    """

    def __init__(self, skip_steps: int = 0, step_markers: bool = False, clock: ManualClock | None = None) -> None:
        if step_markers and find_spec("tensorflow") is None:
            raise ImportError(
                "step_markers are for TensorFlow's profiler, which isn't here: pip install 'fastsup[cpu]'."
            )
        super().__init__(skip_steps, step_markers, clock)
        # The whole program, where a command runs it.
        self.program: Program | None = None
        self._head = head_of()

    def step_marker(self) -> AbstractContextManager[Any]:
        """Marks the step under way for TensorFlow's own profiler, should that be running."""
        if "tensorflow" not in sys.modules:
            return super().step_marker()  # Then it isn't.
        import tensorflow as tf

        return tf.profiler.experimental.Trace("step", step_num=self.steps_begun, _r=1)  # type: ignore[no-any-return]

    def __enter__(self) -> HookProfiler:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def is_of(self, script: str, arguments: Iterable[str]) -> None:
        """Says what the profile is of, where that isn't what `sys.argv` had when the profiler was made.

        Args:
          script: the script.
          arguments: its arguments.
        """
        self._head = replace(self._head, script=script, arguments=tuple(arguments))

    def report(self) -> Report:
        """What was recorded so far, as numbers."""
        program = self.program
        head = replace(self._head, versions=head_of().versions)
        if program is None:
            return report_of(self, head)
        return report_of(self, head, program.timeline.phases(), program.plain_sessions)

    def table(self) -> str:
        """What was recorded so far, as a table of at most 80 columns, without colours."""
        return as_text(self.report())

    def print_table(self, file: TextIO | None = None) -> None:
        """Prints the table, with colours if that is a terminal and rich is installed.

        Args:
          file: where to; None for `sys.stdout`.
        """
        print_table(self.report(), file or sys.stdout)

    def write_json(self, path: Path) -> None:
        """Writes what was recorded as JSON: the schema is in docs/profiling.md.

        Args:
          path: the file to write, whole or not at all.

        Raises:
          OSError: it can't be written.
        """
        _write(path, as_json(self.report()))

    def write_csv(self, path: Path) -> None:
        """Writes the rows of the table as CSV. Arguments and errors as for `write_json`."""
        _write(path, as_csv(self.report()))

    def write_trace(self, path: Path) -> None:
        """Writes the spans of a sample of steps as a Chrome trace. Arguments and errors as for `write_json`."""
        _write(path, as_chrome_trace(self))

    def write_html(self, path: Path) -> None:
        """Writes a page that needs nothing beside itself. Arguments and errors as for `write_json`."""
        _write(path, as_html(self.report(), self))

    def __repr__(self) -> str:
        return f"<HookProfiler: {self.steps_begun} steps>"

    def __deepcopy__(self, memo: Any = None) -> HookProfiler:
        # A copy of what refers to it, a RunConfig say, refers to it too.
        return self

    __copy__ = __deepcopy__

    def __reduce__(self) -> Any:
        raise TypeError("A HookProfiler can't be pickled: it is being written to. Keep its report().")


def _write(path: Path, text: str) -> None:
    if "://" in os.fspath(path):
        from fastsup.runtime import remote_files

        remote_files.write_whole(path, text)
    else:
        write_whole(path, text)
