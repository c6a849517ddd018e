"""How far a loop has come: a bar in a terminal, lines anywhere else."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any, TextIO

from fastsup.core.clock import now
from fastsup.loop.numbers import Values, check_values, named_numbers
from fastsup.loop.periodic import PeriodicHook

_BAR_SECS, _LINE_SECS = 0.1, 10.0


class ProgressHook(PeriodicHook):
    """Shows step, rate, the result's numbers and the time that is left.

    In a terminal that is a bar, if rich is installed; else a line at intervals.

    Args:
      total: global step at which the loop is to end; None: as the loop's `max_steps` says, if it does.
      every_secs: seconds between two updates; None: 0.1 for a bar, 10 for lines.
      file: text stream; None: `sys.stderr`.
      values: a function that takes the result and returns what to show, a number or a mapping of names to numbers.
        None: the result, where it is such.

    Raises:
      ValueError: `every_secs` or `total` isn't positive.
      TypeError: `every_secs` isn't a number, `total` no integer, `file` no stream, or `values` can't be called.
    """

    def __init__(
        self,
        total: int | None = None,
        every_secs: float | None = None,
        file: TextIO | None = None,
        values: Values | None = None,
    ) -> None:
        if total is not None and not hasattr(total, "__index__"):
            raise TypeError(f"total must be a global step, or None, got {total!r}")
        if total is not None and total <= 0:
            raise ValueError(f"total must be positive, or None where no end is known, got {total!r}")
        if file is not None and not hasattr(file, "write"):
            raise TypeError(f"file must be a text stream, or None for sys.stderr, got {file!r}")
        super().__init__(every_secs=_LINE_SECS if every_secs is None else every_secs)
        self._secs_given = every_secs is not None
        self._total = total
        self._file = file
        self._optional = values is None
        self._values = check_values(values)

    def begin(self, loop: Any) -> None:
        file = sys.stderr if self._file is None else self._file
        total = self._total
        if total is None and loop.max_steps is not None:
            total = loop.global_step - loop.steps + loop.max_steps
        bar = _bar(file, loop.global_step, total) if getattr(file, "isatty", bool)() else None
        if not self._secs_given:
            self.every_secs = _LINE_SECS if bar is None else _BAR_SECS
        self._display: Any = bar or _Lines(file, total)
        self._shown_step, self._shown_time = loop.global_step, now()
        super().begin(loop)

    def act(self, loop: Any) -> None:
        time = now()
        # A clock may be set back.
        secs = max(time - self._shown_time, 1e-9)
        self._display.show(loop.global_step, (loop.global_step - self._shown_step) / secs, self._numbers(loop.result))
        self._shown_step, self._shown_time = loop.global_step, time

    def end(self, loop: Any) -> None:
        if loop.global_step > self._shown_step:
            self.act(loop)
        self._display.close()

    def on_error(self, loop: Any, error: BaseException) -> None:
        # A terminal is left as it was found.
        if hasattr(self, "_display"):
            self._display.close()

    def _numbers(self, result: Any) -> str:
        try:
            numbers = named_numbers(self._values(result))
        except TypeError:
            if not self._optional:
                raise
            return ""
        return ", ".join(f"{name} {number:.6g}" for name, number in numbers.items())


class _Lines:
    """A line for each update."""

    def __init__(self, file: TextIO, total: int | None) -> None:
        self._file, self._total = file, total

    def show(self, step: int, rate: float, numbers: str) -> None:
        parts = [f"step {step:,}"]
        if self._total is not None:
            parts[0] += f" of {self._total:,} ({step / max(self._total, 1):.0%})"
        parts.append(_rate(rate))
        if numbers:
            parts.append(numbers)
        if self._total is not None and self._total > step and rate > 0:
            parts.append(f"{timedelta(seconds=round((self._total - step) / rate))} left")
        print(", ".join(parts), file=self._file, flush=True)

    def close(self) -> None:
        pass


class _Bar:
    """A bar that rich draws."""

    def __init__(self, progress: Any, step: int, total: int | None) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=total, completed=step, step=f"{step:,}", rate="", numbers="")
        progress.start()

    def show(self, step: int, rate: float, numbers: str) -> None:
        self._progress.update(
            self._task, completed=step, step=f"{step:,}", rate=_rate(rate), numbers=numbers, refresh=True
        )

    def close(self) -> None:
        self._progress.stop()


def _bar(file: TextIO, step: int, total: int | None) -> _Bar | None:
    """A bar, if rich is there."""
    try:
        from rich import progress
        from rich.console import Console
    except ImportError:
        return None
    end = "" if total is None else f" of {total:,}"
    columns = (
        progress.TextColumn("step {task.fields[step]}" + end),
        progress.BarColumn(),
        progress.TextColumn("{task.fields[rate]}"),
        progress.TextColumn("{task.fields[numbers]}", markup=False),
        progress.TimeRemainingColumn(),
    )
    # Drawn from the loop, so that no other thread wants the interpreter meanwhile.
    return _Bar(progress.Progress(*columns, console=Console(file=file), auto_refresh=False), step, total)


def _rate(rate: float) -> str:
    return f"{rate:,.0f} steps/s" if rate >= 10 else f"{rate:.3g} steps/s"
