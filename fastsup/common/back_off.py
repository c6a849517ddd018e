"""Failures in a row: how many of them a loop or a session recovers from, and how long it waits before the next try."""

from __future__ import annotations

import operator
from typing import Any

__all__ = ["FailureRow", "check_max_recoveries"]

_LONGEST_DELAY_SECS = 30.0


class FailureRow:
    """Failures in a row. Its owner says when the row has ended; a failure itself never ends a row.

    Args:
      max_recoveries: number of failures in a row to recover from, or None for no limit.
      what_failed: the failures, in the error that is logged when there are too many.
      logger: object with `warning` and `error`.

    Raises:
      TypeError: `max_recoveries` isn't an integer.
      ValueError: `max_recoveries` is negative.
    """

    def __init__(self, max_recoveries: int | None, what_failed: str, logger: Any) -> None:
        check_max_recoveries(max_recoveries)
        self._limit = max_recoveries
        self._what_failed = what_failed
        self._logger = logger
        self._failures = 0

    def end(self) -> None:
        """Ends the row: the next failure is the first of another one."""
        self._failures = 0

    def add(self, error: Exception, occasion: str, *values: Any) -> float:
        """Adds a failure, and logs a warning.

        Args:
          error: the error.
          occasion: the warning, as a format for `values`.
          values: the values in the warning.

        Returns:
          Seconds to wait before the next try: none after the first failure, then 0.1, 0.2 and so on up to 30.

        Raises:
          Exception: the error, if it is one too many.
        """
        self._failures += 1
        limit = self._limit
        if limit is not None and self._failures > limit:
            self._logger.error(
                "No longer recovering: %d %s in a row. The argument max_recoveries limits them. See "
                "`python -m fastsup docs dropin#sessions-and-executors`.",
                self._failures,
                self._what_failed,
            )
            raise error
        # The exponent is bounded: failures without a limit would overflow a float.
        first = self._failures == 1
        delay = 0.0 if first else min(_LONGEST_DELAY_SECS, 0.1 * 2.0 ** min(self._failures - 2, 20))
        self._logger.warning(
            occasion + " (Failure %d%s in a row; the next try in %g seconds.)",
            *values,
            self._failures,
            "" if limit is None else f" of at most {limit + 1}",
            delay,
        )
        return delay


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
