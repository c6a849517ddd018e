"""Checks of the arguments of `tf.estimator.tpu`."""

from __future__ import annotations

import re
from numbers import Integral
from typing import Any, NamedTuple

__all__ = ["IterationsPerLoopCounter", "check_positive_integer", "parse_iterations_per_loop"]

_SECONDS = {"s": 1, "m": 60, "h": 3600}


class IterationsPerLoopCounter(NamedTuple):
    """How long a loop on a TPU is.

    Args:
      value: how many steps or seconds.
      unit: "count" or "seconds".
    """

    value: int
    unit: str


def check_positive_integer(value: Any, name: str) -> None:
    """Raises an error for a value that isn't a positive integer.

    Raises:
      TypeError: it isn't an integer.
      ValueError: it isn't positive.
    """
    if not isinstance(value, Integral):
        raise TypeError(f"{name} must be int, got {type(value)}")
    if value <= 0:
        raise ValueError(f"{name} must be positive, got {value}")


def parse_iterations_per_loop(iterations_per_loop: Any) -> IterationsPerLoopCounter:
    """What TPUConfig's argument of that name says.

    Args:
      iterations_per_loop: a number of steps, or a text with a number and its unit, s, m or h: "60m".

    Raises:
      ValueError: it is neither.
    """
    match = re.fullmatch(r"([1-9]\d*)([smh]?)", str(iterations_per_loop))
    if match is None:
        raise ValueError(
            f"Invalid TPUConfig `iterations_per_loop` value. Got {iterations_per_loop!r}: must be a positive integer, "
            "or a time such as `3600s`, `60m`, `1h`."
        )
    value, unit = int(match[1]), match[2]
    return (
        IterationsPerLoopCounter(value * _SECONDS[unit], "seconds")
        if unit
        else IterationsPerLoopCounter(value, "count")
    )
