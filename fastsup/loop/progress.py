"""The hook that shows the progress of a loop: a bar in a terminal, lines anywhere else."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TextIO

from fastsup.common.progress_display import check_display_arguments, open_display
from fastsup.core.clock import steady
from fastsup.loop.metrics import Values, check_values, named_numbers
from fastsup.loop.periodic import PeriodicHook, stop_steps


class ProgressHook(PeriodicHook):
    """Shows the step, the rate, the epoch, the numbers of the result and of the last evaluation, and the time left.

    In a terminal it shows a bar if rich is installed. Elsewhere it prints a line at intervals.

    Args:
      total: global step at which the loop will end; None to use the loop's `max_steps` and its `StopAtStepHook`s,
        if there are any.
      every_secs: seconds between updates; None for 0.1 with a bar and 10 with lines.
      file: text stream; None for `sys.stderr`.
      values: function that takes the result and returns the number, or the mapping from names to numbers, to show. If
        None, shows the result itself if it is a number or such a mapping.

    Raises:
      ValueError: If `every_secs` or `total` isn't positive.
      TypeError: If `every_secs` isn't a number, `total` isn't an integer, `file` isn't a stream, or `values` can't be
        called.
    """

    def __init__(
        self,
        total: int | None = None,
        every_secs: float | None = None,
        file: TextIO | None = None,
        values: Values | None = None,
    ) -> None:
        check_display_arguments(total, file)
        # Without an interval, the display chooses one in `begin`.
        super().__init__(every_secs=math.inf if every_secs is None else every_secs)
        self._secs_given = every_secs is not None
        self._total = total
        self._file = file
        self._optional = values is None
        self._evaluation: dict[str, float] = {}
        self._values = check_values(values)

    def begin(self, loop: Any) -> None:
        self._stop_steps = stop_steps(loop.hooks, loop.global_step)
        self._evaluation = {}
        label = "evaluating batch" if getattr(loop, "evaluates", False) else "step"
        self._display = open_display(self._file, loop.global_step, self._end_step(loop), label)
        restored = getattr(loop, "restored_step", None)
        if restored is not None and restored == loop.global_step:
            self._display.note(f"The checkpoint of step {restored:,} was restored.")
        if not self._secs_given:
            self.every_secs: float | None = self._display.every_secs
        self._shown_step, self._shown_time = loop.global_step, steady()
        super().begin(loop)

    def act(self, loop: Any) -> None:
        time = steady()
        secs = max(time - self._shown_time, 1e-9)
        # A recovery may have restored an earlier step.
        rate = max(loop.global_step - self._shown_step, 0) / secs
        self._display.show(loop.global_step, self._end_step(loop), rate, self._numbers(loop))
        self._shown_step, self._shown_time = loop.global_step, time

    def on_evaluation(self, loop: Any, metrics: Mapping[str, float]) -> None:
        """Shows an evaluation's results from now on.

        Args:
          loop: the `StepLoop`.
          metrics: the numbers, by name.
        """
        self._evaluation |= {f"eval {name}": number for name, number in metrics.items()}

    def end(self, loop: Any) -> None:
        if loop.global_step > self._shown_step:
            self.act(loop)
        self._display.close()

    def on_error(self, loop: Any, error: BaseException) -> None:
        # Closing the display restores the terminal.
        if hasattr(self, "_display"):
            self._display.close()

    def _end_step(self, loop: Any) -> int | None:
        """Returns the global step at which the loop ends; None if it is unknown."""
        if self._total is not None:
            return self._total
        ends = self._stop_steps if loop.max_steps is None else [loop.max_steps, *self._stop_steps]
        return min(ends, default=None)

    def _numbers(self, loop: Any) -> str:
        """Returns the text of the numbers to show."""
        try:
            numbers = named_numbers(self._values(loop.result))
        except TypeError:
            if not self._optional:
                raise
            numbers = {}
        batches: Any = getattr(loop, "batches", None)
        length = getattr(batches, "batches_per_epoch", None)
        epoch = {} if length is None else {"epoch": round(batches.position / length, 2)}
        shown = {**epoch, **numbers, **self._evaluation}
        return ", ".join(f"{name} {number:.6g}" for name, number in shown.items())
