"""How often a loop or a session tries a failed step again, and how long it waits before."""

from __future__ import annotations

import operator
from typing import Any

__all__ = ["check_max_recoveries", "delay_before_next_try"]

_LONGEST_DELAY_SECS = 30.0


def delay_before_next_try(failures: int) -> float:
    """The wait after some failures in a row: none after the first, then 0.1 seconds, 0.2 and so on up to 30.

    Args:
      failures: the number of failures in a row, at least 1.

    Returns:
      Seconds.
    """
    # The exponent is bounded: failures without a limit would overflow a float.
    return 0.0 if failures == 1 else min(_LONGEST_DELAY_SECS, 0.1 * 2.0 ** min(failures - 2, 20))


def check_max_recoveries(max_recoveries: Any) -> None:
    """Refuses a value that isn't a number of recoveries.

    Args:
      max_recoveries: the argument of a loop or session; None for no limit.

    Raises:
      TypeError: it isn't an integer.
      ValueError: it is negative.
    """
    if max_recoveries is None:
        return
    if isinstance(max_recoveries, bool) or not hasattr(max_recoveries, "__index__"):
        raise TypeError(f"max_recoveries must be an integer or None, got {max_recoveries!r}.")
    if operator.index(max_recoveries) < 0:
        raise ValueError(f"max_recoveries must not be negative, got {max_recoveries!r}. Pass None for no limit.")
