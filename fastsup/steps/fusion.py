"""What is known of a step function whose steps may be made at once. All loops over the function share it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import tensorflow as tf

from fastsup.steps.fusion_trial import FUSED, SINGLE, FusionTrial

__all__ = ["Fusion", "MakesSteps", "fusion_of"]

_ATTRIBUTE = "_fastsup_fusions"
# Kinds of arguments and batches of one function whose compiled loops are kept.
_MOST_KINDS = 8


class MakesSteps(Protocol):
    """Makes several steps in one call: a `FusedFunction`, or the same in a session."""

    @property
    def most_results(self) -> int:
        """As of `FusedFunction`."""

    def __call__(
        self, first: int, steps: int, stacked: Sequence[Any], args: Any, kwargs: Any, with_results: bool, /
    ) -> tuple[Any, Any]:
        """As of `FusedFunction`."""


class Fusion:
    """What is known of the steps of one function with one kind of arguments and batches.

    Attributes:
      function: what was made last to make the steps; None before steps are made at once for the first time.
      functions: what makes them, by the shapes of a batch.
      compiled: the shapes of a batch with which a call is compiled, each with whether it has the results of all steps.
      spec: the structure of specs of the batches that were made at once last; None before that.
      trial: the `FusionTrial`.
      why_not: why steps can't be made at once; an empty string if they can.
      first_secs: seconds of the first step; None before it.
      spent: seconds of the steps that were made one by one since a loop of steps was compiled; without the first one.
      seconds: by way, the seconds of a step of late.
      most: the most steps that a call may make as yet.
    """

    def __init__(self) -> None:
        self.function: MakesSteps | None = None
        self.functions: dict[Any, MakesSteps] = {}
        self.compiled: set[tuple[Any, bool]] = set()
        self.spec: Any = None
        self.trial: FusionTrial = FusionTrial()
        self.why_not: str = ""
        self.first_secs: float | None = None
        self.spent: float = 0.0
        self.seconds: dict[str, float] = {SINGLE: 0.0, FUSED: 0.0}
        self.most: int = 0


def fusion_of(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], batch: Any, counter: Any = None) -> Fusion:
    """What is known of a function's steps; nothing, if this is the first loop over it.

    Args:
      function: TensorFlow's function, which keeps it.
      args, kwargs: its arguments, without those of the batch.
      batch: the structure of specs of a batch; None for a step without.
      counter: the variable that counts the steps, or None.
    """
    fusions: dict[Any, Fusion] = vars(function).setdefault(_ATTRIBUTE, {})
    leaves = [*tf.nest.flatten((args, kwargs)), counter]
    key = (str(batch), str(tf.nest.map_structure(lambda leaf: 0, (args, kwargs))), *map(_kind_of, leaves))
    fusion = fusions.pop(key, None) or Fusion()
    fusions[key] = fusion
    while len(fusions) > _MOST_KINDS:
        del fusions[next(iter(fusions))]
    return fusion


def _kind_of(leaf: Any) -> Any:
    """What of an argument decides which compiled loop it goes to."""
    if hasattr(leaf, "dtype") and hasattr(leaf, "shape") and not isinstance(leaf, tf.Variable):
        return str(leaf.dtype), str(leaf.shape)
    # An object is kept alive, so that no other one gets its address.
    return (type(leaf), leaf) if isinstance(leaf, bool | int | float | str | bytes | None) else _Same(leaf)


class _Same:
    """An object that is equal to itself alone.

    Args:
      value: the object.
    """

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other._value is self._value

    def __hash__(self) -> int:
        return id(self._value)
