"""The hook that ends a loop which has diverged."""

from __future__ import annotations

import logging
import math
from typing import Any

from fastsup.core.checks import check_flag, check_interval
from fastsup.loop.numbers import Values, check_values, named_numbers
from fastsup.loop.periodic import PeriodicHook

_logger = logging.getLogger("fastsup")


class NanResultError(RuntimeError):
    """The result of a step contains NaN."""


class NanGuardHook(PeriodicHook):
    """Ends the loop when the result of a step contains NaN.

    If a device is still computing the result, the hook waits for it. A larger `every_steps` makes it wait less often.

    Args:
      fail_on_nan: True to raise `NanResultError`; False to log a warning and stop the loop.
      every_steps: the hook checks the results of the global steps that are multiples of this number.
      values: function that takes the result and returns a number, or a mapping of names to numbers, to check. None if
        the result is such itself.

    Raises:
      ValueError: `every_steps` isn't positive.
      TypeError: `every_steps` isn't a number, `fail_on_nan` isn't a bool, or `values` can't be called.
    """

    def __init__(self, fail_on_nan: bool = True, every_steps: int = 1, values: Values | None = None) -> None:
        check_flag(fail_on_nan=fail_on_nan)
        check_interval("every_steps", every_steps, optional=False)
        super().__init__(every_steps)
        self._fail_on_nan = fail_on_nan
        self._values = check_values(values)

    def act(self, loop: Any) -> None:
        result = loop.result
        # The most frequent case, at the least cost.
        if type(result) is float and result == result:
            return
        numbers = named_numbers(self._values(result))
        bad = [name for name, number in numbers.items() if math.isnan(number)]
        if not bad:
            return
        message = f"NaN in the result of step {loop.global_step}: {', '.join(bad)}"
        if self._fail_on_nan:
            raise NanResultError(message)
        _logger.warning(message)
        loop.request_stop()
