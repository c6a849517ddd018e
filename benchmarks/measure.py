"""Measures contenders in turns, in short slices, so that a disturbance of the machine hits all of them; and memory."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Protocol

# A step that no run reaches.
NEVER = 10**15

SLICE_SECS = 0.15
QUICK_SLICE_SECS = 0.03
_PAGE = 4096


def resident() -> int:
    """Returns the bytes of resident memory, after free memory was returned to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


class Contender(Protocol):
    """One way to run a step."""

    def steps(self, n: int) -> None:
        """Runs n steps."""

    def close(self) -> None:
        """Closes its session, if it has one."""


def time_slice(contender: Contender, steps: int) -> float:
    """Returns the seconds that a number of steps take, with the garbage collector off."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        started = perf_counter()
        contender.steps(steps)
        return perf_counter() - started
    finally:
        if enabled:
            gc.enable()


def steps_per_slice(contender: Contender, slice_secs: float) -> int:
    """Returns the number of steps that fill a slice. This also warms the contender up.

    Args:
      contender: the contender.
      slice_secs: length of a slice in seconds.
    """
    contender.steps(5)  # The first step makes plans.
    steps = 1
    while (seconds := time_slice(contender, steps)) < slice_secs / 2:
        steps *= 2
    steps = max(1, round(steps * slice_secs / seconds))
    # `executor="auto"` has chosen after this, at the latest.
    seconds = time_slice(contender, steps)
    return max(1, round(steps * slice_secs / seconds))


def alternate(
    contenders: Mapping[str, Callable[[], Contender]],
    rounds: int,
    slice_secs: float = SLICE_SECS,
) -> dict[str, list[float]]:
    """Measures contenders in turns.

    Args:
      contenders: function that makes each contender, by name.
      rounds: number of slices for each.
      slice_secs: approximate length of a slice in seconds. A slice has at least one step.

    Returns:
      For each contender, the seconds per step of each of its slices.
    """
    opened: dict[str, Contender] = {}
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    try:
        for name, make in contenders.items():
            opened[name] = make()
        steps = {name: steps_per_slice(contender, slice_secs) for name, contender in opened.items()}
        order = list(opened)
        for _ in range(rounds):
            gc.collect()
            for name in order:
                samples[name].append(time_slice(opened[name], steps[name]) / steps[name])
            order.append(order.pop(0))  # A different contender begins each round.
    finally:
        for contender in opened.values():
            contender.close()
    return samples
