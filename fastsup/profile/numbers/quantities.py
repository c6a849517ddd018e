"""Numbers as text for people: durations in three digits, shares in per cent, counts in a few characters."""

from __future__ import annotations

__all__ = ["count", "duration", "percent"]

_UNITS = ((1e3, 1.0, "ns"), (1e6, 1e3, "µs"), (1e9, 1e6, "ms"))


def duration(ns: float) -> str:
    """Returns a duration, given in nanoseconds, in three digits: "1.23µs"."""
    for limit, unit, name in _UNITS:
        if ns < limit * 0.9995:
            return _three_digits(ns / unit) + name
    return _three_digits(ns / 1e9) + "s"


def _three_digits(number: float) -> str:
    if number >= 99.95 or number == 0:
        return f"{number:.0f}"
    return f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"


def percent(share: float) -> str:
    """Returns a share of 0 to 1 as a percentage: "4.5%"."""
    return "100%" if share >= 0.9995 else f"{100 * share:.1f}%"


def count(number: int, digits: int = 5) -> str:
    """Returns a whole number in a few characters: "12345", "1.23M".

    Args:
      number: the number.
      digits: up to this many digits, the number is written in full.
    """
    if number < 10**digits:
        return str(number)
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= unit * 0.9995:
            scaled = number / unit
            return (f"{scaled:.0f}" if scaled >= 99.95 else f"{scaled:.3g}") + name
    return str(number)
