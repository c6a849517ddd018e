"""The clock: contenders run in turn, a short slice each, so that what disturbs the machine disturbs them all."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Protocol

# A step that no run gets to.
NEVER = 10**15

SLICE_SECS = 0.15
QUICK_SLICE_SECS = 0.03


class Contender(Protocol):
    """One way to run a step."""

    def steps(self, n: int) -> None:
        """Runs n steps."""

    def close(self) -> None:
        """Frees what it holds."""


def time_slice(contender: Contender, steps: int) -> float:
    """Seconds that so many steps take, without the garbage collector."""
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
    """How many steps fill a slice. Finding out warms the contender up."""
    contender.steps(5)  # Builds what is built once.
    steps = 1
    while (seconds := time_slice(contender, steps)) < slice_secs / 2:
        steps *= 2
    steps = max(1, round(steps * slice_secs / seconds))
    # What chooses between executors has chosen by now, at the latest after this.
    seconds = time_slice(contender, steps)
    return max(1, round(steps * slice_secs / seconds))


def alternate(
    contenders: Mapping[str, Callable[[], Contender]],
    rounds: int,
    slice_secs: float = SLICE_SECS,
) -> dict[str, list[float]]:
    """Measures contenders in turn.

    Args:
      contenders: what makes each contender, by name.
      rounds: how often each gets a slice.
      slice_secs: how long a slice is, about; one step at least.

    Returns:
      For each contender the seconds per step of each of its slices.
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
            order.append(order.pop(0))  # Nobody always runs after the same neighbour at the start of a round.
    finally:
        for contender in opened.values():
            contender.close()
    return samples
