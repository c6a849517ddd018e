"""Displays for the progress hooks: a bar in a terminal, or lines in any other stream."""

from __future__ import annotations

import atexit
import logging
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Protocol, TextIO

__all__ = ["Display", "check_display_arguments", "open_display"]

_BAR_SECS, _LINE_SECS = 0.1, 10.0


class Display(Protocol):
    """Shows the progress of one loop.

    Attributes:
      every_secs: default interval of the updates, in seconds.
    """

    every_secs: float

    def show(self, step: int, total: int | None, rate: float, numbers: str) -> None:
        """Shows the position of the loop.

        Args:
          step: number of completed steps.
          total: step at which the loop ends, or None.
          rate: steps per second.
          numbers: text with other numbers, such as "loss 0.25", or "".
        """

    def note(self, text: str) -> None:
        """Shows a line of text once.

        Args:
          text: the line.
        """

    def close(self) -> None:
        """Ends the display. A second call does nothing."""


def check_display_arguments(total: Any, file: Any) -> None:
    """Checks the arguments of a display.

    Args:
      total: step at which the loop ends, or None.
      file: text stream, or None.

    Raises:
      TypeError: If `total` isn't an integer, or `file` isn't a stream.
      ValueError: If `total` isn't positive.
    """
    if total is not None and not hasattr(total, "__index__"):
        raise TypeError(f"total must be a global step, or None, got {total!r}")
    if total is not None and total <= 0:
        raise ValueError(f"total must be positive, or None if the end is unknown, got {total!r}")
    if file is not None and not hasattr(file, "write"):
        raise TypeError(f"file must be a text stream, or None for sys.stderr, got {file!r}")


def open_display(file: TextIO | None, step: int, total: int | None, label: str = "step") -> Display:
    """Opens a display: a bar if the stream is a terminal and rich is installed, otherwise lines.

    Several displays on one terminal, for example of an evaluation during training, are shown below each other. Lines
    that the program prints or logs to the terminal appear above the bars.

    Args:
      file: text stream. If None, `sys.stderr`.
      step: number of completed steps.
      total: step at which the loop ends, or None.
      label: text before the step number.

    Returns:
      The display.
    """
    file = sys.stderr if file is None else file
    # While a bar is shown, rich replaces sys.stderr with its own stream.
    file = getattr(file, "rich_proxied_file", file)
    if getattr(file, "isatty", bool)():
        with _lock:
            terminal = _terminals.get(id(file)) or _new_terminal(file)
            if terminal is not None:
                return _Bar(terminal, step, total, label)
    return _Lines(file, label)


class _Lines:
    """Writes a line for each update."""

    every_secs = _LINE_SECS

    def __init__(self, file: TextIO, label: str) -> None:
        self._file, self._label = file, label

    def show(self, step: int, total: int | None, rate: float, numbers: str) -> None:
        parts = [f"{self._label} {step:,}"]
        if total is not None:
            parts[0] += f" of {total:,} ({step / max(total, 1):.0%})"
        parts.append(_rate_text(rate))
        if numbers:
            parts.append(numbers)
        if total is not None and total > step and rate > 0:
            parts.append(f"{timedelta(seconds=round((total - step) / rate))} left")
        self.note(", ".join(parts))

    def note(self, text: str) -> None:
        print(text, file=self._file, flush=True)

    def close(self) -> None:
        pass


class _Bar:
    """A bar in a terminal."""

    every_secs = _BAR_SECS

    def __init__(self, terminal: _Terminal, step: int, total: int | None, label: str) -> None:
        self._terminal: _Terminal | None = terminal
        self._progress = terminal.progress
        self._label = label
        self._task = terminal.add(total=total, completed=step, step=self._text(step, total), rate="", numbers="")

    def _text(self, step: int, total: int | None) -> str:
        return f"{self._label} {step:,}" + ("" if total is None else f" of {total:,}")

    def show(self, step: int, total: int | None, rate: float, numbers: str) -> None:
        text = self._text(step, total)
        self._progress.update(
            self._task, total=total, completed=step, step=text, rate=_rate_text(rate), numbers=numbers, refresh=True
        )

    def note(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        terminal, self._terminal = self._terminal, None
        if terminal is not None:
            with _lock:
                terminal.remove(self._task)


class _Terminal:
    """The bars of one terminal, and the redirection of everything else that the program writes there."""

    def __init__(self, progress: Any, file: TextIO) -> None:
        self.progress = progress
        self._file = file
        self._handlers: list[tuple[Any, Any, Any]] = []
        self._open_bars = 0

    def add(self, **fields: Any) -> Any:
        """Adds a bar. The caller holds the lock."""
        if self._open_bars == 0:
            _terminals[id(self._file)] = self
            # rich hides the cursor, which must be shown again even if the program never closes its session.
            atexit.register(self._stop)
            streams = sys.stdout, sys.stderr
            self.progress.start()
            self._redirect_logging(*streams)
        self._open_bars += 1
        return self.progress.add_task("", **fields)

    def remove(self, task: Any) -> None:
        """Removes a bar. The last one remains on the screen. The caller holds the lock."""
        self._open_bars -= 1
        if self._open_bars > 0:
            self.progress.remove_task(task)
        else:
            atexit.unregister(self._stop)
            self._stop()

    def _redirect_logging(self, stdout: Any, stderr: Any) -> None:
        """Redirects the handlers of `logging`, which keep their first stream and would overwrite the bars."""
        redirected = {id(old): new for old, new in ((stdout, sys.stdout), (stderr, sys.stderr)) if new is not old}
        for handler in _log_handlers():
            old = handler.stream
            new = redirected.get(id(old))
            if new is not None:
                handler.setStream(new)
                self._handlers.append((handler, old, new))

    def _stop(self) -> None:
        _terminals.pop(id(self._file), None)
        self.progress.stop()
        for handler, old, new in self._handlers:
            if handler.stream is new:
                handler.setStream(old)
        self._handlers.clear()


_terminals: dict[int, _Terminal] = {}
# The lock is reentrant, because a signal handler may end a loop while another display is opened.
_lock = threading.RLock()


def _new_terminal(file: TextIO) -> _Terminal | None:
    """Creates the bars of a terminal. Returns None if rich isn't installed or the terminal can't show bars."""
    try:
        from rich import progress
        from rich.console import Console
    except ImportError:
        return None
    console = Console(file=file)
    if console.is_dumb_terminal:
        return None
    columns = (
        progress.TextColumn("{task.fields[step]}", markup=False),
        progress.BarColumn(),
        progress.TextColumn("{task.fields[rate]}"),
        progress.TextColumn("{task.fields[numbers]}", markup=False),
        progress.TimeRemainingColumn(),
    )
    bars = progress.Progress(
        *columns,
        console=console,
        # The loop itself draws the bar, because a thread would compete for the interpreter.
        auto_refresh=False,
        # Text for a file must not go to the terminal.
        redirect_stdout=getattr(sys.stdout, "isatty", bool)(),
        redirect_stderr=getattr(sys.stderr, "isatty", bool)(),
    )
    return _Terminal(bars, file)


def _log_handlers() -> Iterator[Any]:
    """Yields all handlers of `logging` that write to a stream."""
    loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
    seen = set()
    for logger in loggers:
        for handler in getattr(logger, "handlers", ()):
            # absl's handler wraps the handler that writes.
            handler = getattr(handler, "_python_handler", handler)
            if isinstance(handler, logging.StreamHandler) and id(handler) not in seen:
                seen.add(id(handler))
                yield handler


def _rate_text(rate: float) -> str:
    return f"{rate:,.0f} steps/s" if rate >= 10 else f"{rate:.3g} steps/s"
