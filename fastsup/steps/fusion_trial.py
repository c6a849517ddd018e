"""Whether many steps in one compiled call are faster than one after the other: measured on the loop's own steps."""

from __future__ import annotations

from statistics import median

# Both ways take turns, in blocks of this many seconds, and at least one call.
_BLOCK_SECS = 0.01
# Pairs of blocks that decide.
_PAIRS = 5
# Where the two are equal, one step after the other stays: signals and hooks are served after each.
_FASTER = 0.95
# A look takes at most this part of the time before it. Each comes after twice as long as the one before.
_LOOK_SHARE = 0.02
_MOST_SECS_UNTIL_LOOK = 600.0

SINGLE, FUSED = "single", "fused"


class FusionTrial:
    """Decides between single steps and fused ones by the time of a step.

    Attributes:
      choice: the way that is chosen, `SINGLE` or `FUSED`; None before the first trial has ended.
      seconds: by way, the median seconds of a step that the last trial has found.
    """

    def __init__(self) -> None:
        self.choice: str | None = None
        self.seconds: dict[str, float] = {}
        self._pairs: dict[str, list[float]] = {SINGLE: [], FUSED: []}
        self._block_steps, self._block_secs = 0, 0.0
        self._secs_of_trial = 0.0
        self._secs_until_look: float | None = None
        self._looks = 0

    @property
    def way(self) -> str:
        """The way to make the next steps."""
        if self._secs_until_look is not None and self.choice is not None:
            return self.choice
        return SINGLE if len(self._pairs[SINGLE]) == len(self._pairs[FUSED]) else FUSED

    def record(self, way: str, steps: int, seconds: float) -> None:
        """Takes the duration of steps.

        Args:
          way: how they were made; those of a way that isn't on trial now don't count.
          steps: their number.
          seconds: how long they took.
        """
        if self._secs_until_look is not None:
            self._secs_until_look -= seconds
            if self._secs_until_look <= 0:
                self._secs_until_look = None
                self._secs_of_trial = 0.0
            return
        self._secs_of_trial += seconds
        if way != self.way:
            return
        self._block_steps += steps
        self._block_secs += seconds
        if self._block_secs >= _BLOCK_SECS:
            self._pairs[way].append(self._block_secs / self._block_steps)
            self._block_steps, self._block_secs = 0, 0.0
            if len(self._pairs[FUSED]) == _PAIRS:
                self._decide()

    def _decide(self) -> None:
        self.seconds = {way: median(secs) for way, secs in self._pairs.items()}
        self._pairs = {SINGLE: [], FUSED: []}
        self.choice = FUSED if self.seconds[FUSED] < _FASTER * self.seconds[SINGLE] else SINGLE
        pause = self._secs_of_trial / _LOOK_SHARE * 2**self._looks
        self._looks += 1
        self._secs_until_look = min(pause, max(_MOST_SECS_UNTIL_LOOK, self._secs_of_trial / _LOOK_SHARE))
