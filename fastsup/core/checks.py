"""Checks of numbers that are intervals: what is refused, and what is taken with a doubt."""

from __future__ import annotations

from typing import Any

__all__ = ["check_interval", "check_number", "doubt_about"]


def check_number(name: str, value: Any, what: str = "a number") -> None:
    """Refuses what can't be compared with a number.

    Args:
      name: name of the argument, for the message.
      value: what was given for it.
      what: what the argument must be, for the message.

    Raises:
      TypeError: it is no number.
    """
    try:
        bool(value > 0)
    except (TypeError, ValueError):  # ValueError: an array of several numbers
        raise TypeError(f"{name} must be {what}, got {value!r} of type {type(value).__name__}.") from None


def check_interval(name: str, value: Any, optional: bool = True) -> None:
    """Refuses an interval that isn't positive.

    Args:
      name: name of the argument, for the message.
      value: the interval, in seconds or steps.
      optional: whether None may be passed in place of one.

    Raises:
      ValueError: it isn't positive.
      TypeError: it isn't a number.
    """
    check_number(name, value)
    if not value > 0:
        remedy = "Pass a positive number" + (", or None to leave it out." if optional else ".")
        raise ValueError(f"{name} must be positive, got {value!r}. {remedy}")


def doubt_about(name: str, value: Any, nan_means: str, negative_means: str) -> str | None:
    """Why an interval that TensorFlow takes is likely a mistake.

    Args:
      name: name of the argument.
      value: the interval, a number.
      nan_means: what becomes of an interval that is NaN: a clause.
      negative_means: what becomes of a negative interval: a clause.

    Returns:
      A sentence for the log; None for 0 and more.
    """
    if value != value:
        return f"{name} is NaN: {nan_means}. Pass a number of 0 or more."
    if value < 0:
        return f"{name}={value!r} is negative: {negative_means}. Pass a number of 0 or more."
    return None
