"""The base of the hooks that tell a monitoring system how training goes on."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fastsup.core.clock import now, steady
from fastsup.loop.numbers import Values, check_values, named_numbers
from fastsup.loop.periodic import PeriodicHook, due_in

__all__ = ["METRICS", "RESULT", "MeasuringHook", "Metric", "check_labels"]


class Metric(NamedTuple):
    """What is measured: its name in words, what it is, its unit, and whether it only grows."""

    words: str
    help: str
    unit: str
    counts: bool


METRICS = (
    Metric("global step", "Global step of the model.", "", False),
    Metric("steps", "Steps that this program has made.", "", True),
    Metric("steps per second", "Steps per second since the measurement before.", "", False),
    Metric("last step timestamp", "Time at which training was last seen to have made a step.", "seconds", False),
    Metric("last checkpoint timestamp", "Time at which the newest checkpoint was written.", "seconds", False),
    Metric("restarts", "Starts of the loop after an error.", "", True),
    Metric("running", "1 while training runs, 0 after its end.", "", False),
)
RESULT = Metric("result", "Numbers of the last result of a step that was read, such as the loss.", "", False)


def check_labels(name: str, labels: Mapping[str, str] | None) -> dict[str, str]:
    """The labels of a hook's metrics.

    Args:
      name: name of the argument, for the message.
      labels: texts by name, or None.

    Raises:
      TypeError: they are something else.
      ValueError: a name isn't one that a label can have, or is that of a number of the result.
    """
    labels = {} if labels is None else labels
    if not isinstance(labels, Mapping) or not all(isinstance(text, str) for pair in labels.items() for text in pair):
        raise TypeError(f"{name} must be a dictionary of texts by name, or None; got {labels!r}.")
    for label in labels:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", label) or label == "name":
            raise ValueError(
                f"{name} must have names of letters, digits and underscores, other than 'name', which numbers of the "
                f"result have; got {label!r}."
            )
    return dict(labels)


class MeasuringHook(PeriodicHook):
    """Measures at intervals. What reads the measurements, and when, doesn't matter to training.

    Args:
      every_secs: seconds between two measurements.
      values: function that takes the result of a step and returns a number, which is named "loss", or a mapping of
        names to numbers. None to take the result if it is such itself.
      checkpoint_dir: directory of the checkpoints, whose state file tells the age of the newest one; None to leave
        that out.

    Raises:
      ValueError: `every_secs` isn't positive.
      TypeError: `every_secs` isn't a number, `checkpoint_dir` isn't a path, or `values` can't be called.
    """

    def __init__(self, every_secs: float = 10, values: Values | None = None, checkpoint_dir: Any = None) -> None:
        super().__init__(every_secs=every_secs)
        self._is_optional = values is None
        self._values = check_values(values)
        self._state_file = None if checkpoint_dir is None else Path(os.fspath(checkpoint_dir)) / "checkpoint"
        self._counts = {"steps": 0, "restarts": 0}
        self._has_failed = False
        self._last_steps, self._last_time = 0, 0.0
        self._measured: dict[str, float] = {}
        self._result: dict[str, float] = {}

    def measurements(self) -> dict[str, float]:
        """The last measurements, by the words of their `Metric`. Any thread may call this."""
        written = self._checkpoint_time()
        return {**self._measured, **({} if written is None else {"last checkpoint timestamp": written})}

    def result_numbers(self) -> dict[str, float]:
        """The numbers of the last result that was read, by name. Any thread may call this."""
        return self._result

    def begin(self, loop: Any) -> None:
        self._counts["restarts"] += self._has_failed
        self._has_failed = False
        self._last_steps, self._last_time = loop.steps, steady()
        self._measure(loop, running=1)
        self.never_due()
        # After the first step, and then at intervals: a short program has its result, too.
        due_in(self, 0.0)

    def act(self, loop: Any) -> None:
        self._measure(loop, running=1)
        self._read(loop.result)

    def end(self, loop: Any) -> None:
        self._measure(loop, running=0)
        if getattr(loop, "session", None) is None:
            self._read(loop.result)

    def on_error(self, loop: Any, error: BaseException) -> None:
        self._has_failed = True
        self._measure(loop, running=0)

    def _measure(self, loop: Any, running: int) -> None:
        time = steady()
        # Never negative, whatever another loop has done with the hook: counters only grow.
        steps, secs = max(loop.steps - self._last_steps, 0), time - self._last_time
        self._last_steps, self._last_time = loop.steps, time
        self._counts["steps"] += steps
        measured = {"global step": float(loop.global_step), "running": float(running), **self._counts}
        for words in ("steps per second", "last step timestamp"):
            if words in self._measured:
                measured[words] = self._measured[words]
        if steps:
            measured["last step timestamp"] = now()
        if steps or running:
            measured["steps per second"] = steps / max(secs, 1e-9)
        # In one go: another thread may read it now.
        self._measured = measured

    def _read(self, result: Any) -> None:
        if not self._is_optional:
            self._result = named_numbers(self._values(result))
            return
        # What a step returns need not be numbers, unless `values` says which.
        items = result.items() if isinstance(result, Mapping) else [("loss", result)]
        found = {}
        for name, value in items:
            if not isinstance(value, str | bytes):
                with contextlib.suppress(TypeError):
                    found.update(named_numbers({name: value}))
        self._result = found

    def _checkpoint_time(self) -> float | None:
        try:
            return None if self._state_file is None else self._state_file.stat().st_mtime
        except OSError:
            return None  # No checkpoint was saved yet.
