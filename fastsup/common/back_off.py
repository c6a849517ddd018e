"""How long a loop or a session waits before it tries a failed step again."""

from __future__ import annotations

__all__ = ["delay_before_next_try"]

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
