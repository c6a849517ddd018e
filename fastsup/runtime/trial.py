"""Determines which of two executors is faster for a plan, by its own runs, and repeats this at growing intervals."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from statistics import fmean, median
from typing import Any

from tensorflow.python.framework import ops
from tensorflow.python.platform import tf_logging as logging

from fastsup.common.interpreter_end import no_interpreter_exit
from fastsup.runtime.callables import CompiledCallable
from fastsup.runtime.executor import INLINE, POOL

# A step that takes longer than this on the pool gains nothing measurable from cheaper thread switches, and may lose
# much.
_HEAVY_STEP_SECS = 500e-6
_LIGHTNESS_RUNS = 3
# A busy machine slows a step's first runs. A step that isn't clearly heavy gets more runs to show that it is light.
_CLEARLY_HEAVY_SECS = 2e-3
_MOST_LIGHTNESS_RUNS = 12
# The executors alternate in blocks. The first runs of a block don't count, because an input pipeline that runs at the
# same time needs a few runs to adapt. The slowest runs don't count either, because the machine did something else
# during them.
_BLOCK_RUNS = 16
_SETTLING_RUNS = 4
_SLOWEST_RUNS = 2
# Each pair of blocks has a vote if the executors aren't close. A lead of this many votes decides, unless the fastest
# blocks contradict it. After the maximum number of pairs, their median decides.
_CLOSE = 1.1
_VOTES = 3
_MOST_PAIRS = 10
# One pair of blocks that confirms the choice by this factor ends a repeated trial.
_CONFIRMED = 1.5

# A trial usually measures the pool a fifth too slow, because its threads fall asleep while the other executor runs.
_POOL_IN_THE_LONG_RUN = 0.8
# TensorFlow's own session takes at least this much longer per run, which limits the loss from a wrong choice.
_SAVED_SECS = 50e-6
# If both executors are equally fast, TensorFlow's own mode remains.
_FASTER = 0.95
# On a remote engine, the times of both executors include the network call, so a faster step makes only a small
# difference.
_FASTER_REMOTELY = 0.98

# A repeated trial may take this part of the time of the runs before it. Each trial starts after twice as many runs as
# the previous trial.
_LOOK_SHARE = 0.01
_FEWEST_RUNS = 1000
_MOST_DOUBLINGS = 40


class Trial:
    """Determines which of two executors is faster for a plan, by the plan's own runs.

    The pool runs first. Only a step that is light there is tried in the calling thread. That callable is created only
    then, because creating one optimizes the graph, which takes long for large graphs. In addition, the plan must have
    run so often that it has saved as much time, compared with TensorFlow's own session. From then on, both alternate.

    Args:
      pool: the callable that runs on the thread pool.
      make_inline: function that creates the callable for the calling thread, or None if there is no room for it.
      remote: Whether the engine belongs to another process, or is reached like one.
      chosen: function that is called with this trial when the executor is chosen or changes.
      compile_secs: seconds that creating a callable takes.
    """

    def __init__(
        self,
        pool: CompiledCallable,
        make_inline: Callable[[], CompiledCallable | None],
        remote: bool,
        chosen: Callable[[Trial], None],
        compile_secs: float,
    ) -> None:
        # No thread waits for this lock. A run that finishes while another thread's run is recorded doesn't count.
        self._lock = threading.Lock()
        self._make_inline = make_inline
        self._remote = remote
        self._chosen = chosen
        self._runs_to_wait = int(compile_secs / _SAVED_SECS)
        self._is_waiting = False
        self._callables: dict[str, CompiledCallable] = {POOL: pool}
        self._secs: dict[str, float] = {}
        self._announced = ""
        self._looks = 0
        self._choice = POOL
        self.on_trial: bool = True
        self._start(weighing=True)

    def _start(self, weighing: bool) -> None:
        # Seconds of the first runs on the pool, which show if a step is light or heavy. None once that is known.
        self._weights: list[float] | None = [] if weighing else None
        self._block: list[float] = []
        self._averages: dict[str, list[float]] = {POOL: [], INLINE: []}

    @property
    def is_open(self) -> bool:
        """True if the choice is pending, for the first time or again."""
        return self.on_trial or self._is_waiting

    @property
    def executor(self) -> str:
        """The current mode: the tried one or the chosen one."""
        return self._turn() if self.on_trial else self._choice

    @property
    def seconds(self) -> float | None:
        """Median seconds per run in the current mode, as the trial measured them. None before that."""
        return self._secs.get(self.executor)

    @property
    def other_seconds(self) -> float | None:
        """Median seconds per run in the other mode. None if that wasn't tried."""
        return self._secs.get(INLINE if self.executor == POOL else POOL)

    def _turn(self) -> str:
        if self._weights is not None:
            return POOL
        return POOL if len(self._averages[POOL]) == len(self._averages[INLINE]) else INLINE

    def next(self) -> CompiledCallable:
        """Returns the callable to run now."""
        return self._callables[self.executor]

    def record(self, candidate: CompiledCallable, seconds: float) -> CompiledCallable | None:
        """Records the duration of a run.

        Args:
          candidate: the callable that ran.
          seconds: its duration.

        Returns:
          The callable to run until `recheck` is called, or None while the trial continues.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if not self.on_trial or candidate is not self.next():
                return None  # Another thread's run has ended the trial or the block in the meantime.
            if self._weights is not None:
                self._weigh(self._weights, seconds)
            else:
                self._block.append(seconds)
                if len(self._block) == _BLOCK_RUNS:
                    self._end_block()
            return None if self.on_trial else self._callables[self._choice]
        finally:
            self._lock.release()

    def recheck(self) -> None:
        """Continues a waiting trial, or starts a shorter one.

        The machine may have been busy during the last one, or the step may have changed.
        """
        if not self._is_waiting:
            self._begin(self._looks, weighing=INLINE not in self._callables)
        elif self._lock.acquire(blocking=False):
            try:
                self._end_wait()
            finally:
                self._lock.release()

    def restart(self) -> None:
        """Starts a trial from scratch, because the step has changed."""
        self._begin(looks=0, weighing=True)

    def _begin(self, looks: int, weighing: bool) -> None:
        if self._lock.acquire(blocking=False):
            try:
                self._looks = looks
                self._is_waiting = False
                self._start(weighing)
                self.on_trial = True
            finally:
                self._lock.release()

    @property
    def runs_until_look(self) -> int:
        """Returns the number of runs before the next repetition."""
        if self._is_waiting:
            return self._runs_to_wait
        runs = _FEWEST_RUNS
        seconds, other = self.seconds, self.other_seconds
        if seconds and other:
            runs = max(runs, int(_BLOCK_RUNS * (other / seconds - 1.0) / _LOOK_SHARE))
        return int(runs * 2 ** min(self._looks - 1, _MOST_DOUBLINGS))

    def _weigh(self, weights: list[float], seconds: float) -> None:
        weights.append(seconds)
        # The first run initialized things, and doesn't count.
        counted = weights[1:]
        if len(counted) < _LIGHTNESS_RUNS:
            return
        if min(counted) <= _HEAVY_STEP_SECS:
            self._weights = None
            if INLINE not in self._callables:
                self._is_waiting = True
                self.on_trial = False
                if self._runs_to_wait == 0:
                    self._end_wait()
        elif min(counted) > _CLEARLY_HEAVY_SECS or len(counted) == _MOST_LIGHTNESS_RUNS:
            self._secs[POOL] = median(counted)
            self._settle(POOL)

    def _end_wait(self) -> None:
        inline = self._make_inline()
        if inline is not None:
            self._callables[INLINE] = inline
            self._is_waiting = False
            self._start(weighing=False)
            self.on_trial = True

    def _end_block(self) -> None:
        counted = sorted(self._block[_SETTLING_RUNS:])[:-_SLOWEST_RUNS]
        self._averages[self._turn()].append(fmean(counted))
        self._block = []
        pool, inline = self._averages[POOL], self._averages[INLINE]
        if len(pool) != len(inline):
            return
        self._secs[POOL], self._secs[INLINE] = median(pool), median(inline)
        limit = self._limit()
        # A ratio above 1 shows by how much the pool is the better choice.
        ratios = [of_inline / (limit * of_pool) for of_inline, of_pool in zip(inline, pool, strict=True)]
        votes = sum((ratio > _CLOSE) - (ratio < 1 / _CLOSE) for ratio in ratios)
        if self._looks and len(ratios) == 1:
            confirmed = ratios[0] if self._choice == POOL else 1 / ratios[0]
            if confirmed > _CONFIRMED:
                self._settle(self._choice)
        elif abs(votes) >= _VOTES and (votes > 0) == (min(inline) > limit * min(pool)):
            self._settle(POOL if votes > 0 else INLINE)
        elif len(ratios) == _MOST_PAIRS:
            self._settle(INLINE if median(ratios) < 1 else POOL)

    def _limit(self) -> float:
        """Returns the fraction of the pool's time that the calling thread must stay below."""
        if self._remote:
            return _FASTER_REMOTELY
        return min(_FASTER, _POOL_IN_THE_LONG_RUN + _SAVED_SECS / self._secs[POOL])

    def _settle(self, choice: str) -> None:
        self._choice = choice
        self._looks += 1
        self.on_trial = False
        self._start(weighing=False)  # Releases the samples.
        if choice != self._announced:
            self._announced = choice
            self._chosen(self)


def log_choice(elements: Iterable[Any], feeds: int, trial: Trial) -> None:
    """Logs the chosen executor.

    Args:
      elements: the plan's fetched tensors and operations.
      feeds: number of fed tensors.
      trial: the trial that decided.
    """
    with no_interpreter_exit:
        names = [
            element.name if isinstance(element, ops.Operation) else element.name.removesuffix(":0")
            for element in elements
        ]
    if len(names) > 4:
        names[3:] = [f"{len(names) - 3:,} more"]
    fed = "" if feeds == 0 else f" with {feeds:,} feed{'s' * (feeds > 1)}"
    seconds, other_seconds = trial.seconds or 0.0, trial.other_seconds
    other = POOL if trial.executor == INLINE else INLINE
    compared = "" if other_seconds is None else f"; {other} {_microseconds(other_seconds)}"
    logging.info(
        "Executor of run([%s])%s: %s (%s a run%s).",
        ", ".join(names), fed, trial.executor, _microseconds(seconds), compared,
    )  # fmt: skip


def _microseconds(seconds: float) -> str:
    micros = seconds * 1e6
    return f"{micros:,.1f} µs" if micros < 10 else f"{micros:,.0f} µs"
