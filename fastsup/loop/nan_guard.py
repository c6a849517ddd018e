"""The hook that ends a loop when its result contains NaN."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from fastsup.common.results import each_result
from fastsup.core.checks import check_flag, check_interval
from fastsup.loop.metrics import Values, check_values, named_numbers
from fastsup.loop.periodic import PeriodicHook

_logger = logging.getLogger("fastsup")


class NanResultError(RuntimeError):
    """The result of a step contains NaN."""


class NanGuardHook(PeriodicHook):
    """Ends the loop when the result of a step contains NaN.

    If a device is still computing the result, the hook waits for it. A larger `every_steps` makes it wait less often.

    Args:
      fail_on_nan: True to raise `NanResultError`; False to log a warning and stop the loop.
      every_steps: the hook checks the results of the global steps that are multiples of this number, and the last one
        when the loop ends.
      values: function that takes the result and returns the number, or the mapping from names to numbers, to check.
        None if the result itself is a number or such a mapping.

    Raises:
      ValueError: If `every_steps` isn't positive.
      TypeError: If `every_steps` isn't a number, `fail_on_nan` isn't a bool, or `values` can't be called.
    """

    def __init__(self, fail_on_nan: bool = True, every_steps: int = 1, values: Values | None = None) -> None:
        check_flag(fail_on_nan=fail_on_nan)
        check_interval("every_steps", every_steps, optional=False)
        super().__init__(every_steps)
        self._fail_on_nan = fail_on_nan
        self._reads = check_values(values)
        self._takes_result = values is None
        #: Whether the hook has found NaN in this run of the loop.
        self.has_found: bool = False
        if type(self).act is not NanGuardHook.act:
            self.after_steps = None  # type: ignore[method-assign, assignment]

    def begin(self, loop: Any) -> None:
        self.has_found = False
        super().begin(loop)

    def act(self, loop: Any) -> None:
        result = loop.result
        # Check the most frequent case first, so that it costs least.
        if type(result) is float and result == result:
            return
        numbers = named_numbers(self._reads(result))
        bad = [name for name, number in numbers.items() if math.isnan(number)]
        if not bad:
            return
        self._end(loop, loop.global_step, bad)

    def after_steps(self, loop: Any, values: Any) -> None:
        """Checks the results of several steps that ran in one call.

        Args:
          loop: the `StepLoop`, whose global step is the last step's.
          values: the results, with the steps as the first dimension.
        """
        if self._takes_result and not _any_nan(values):
            return
        results = each_result(values)
        for before_last, result in zip(reversed(range(len(results))), results, strict=True):
            numbers = named_numbers(self._reads(result))
            bad = [name for name, number in numbers.items() if math.isnan(number)]
            if bad:
                self._end(loop, loop.global_step - before_last, bad)
                return

    def end(self, loop: Any) -> None:
        """Checks the last result, which may be unchecked, because the final checkpoint saves that step."""
        has_looked = self.has_found or self.next_step is None or loop.result is None
        if not has_looked and type(self).act is NanGuardHook.act:
            self.act(loop)

    def _end(self, loop: Any, step: int, bad: list[str]) -> None:
        self.has_found = True
        message = f"NaN in the result of step {step}: {', '.join(bad)}"
        if getattr(loop, "step_is_native", False):
            message += ". It is also NaN if a step in C doesn't set loop->result."
        if self._fail_on_nan:
            raise NanResultError(message)
        _logger.warning(message)
        loop.request_stop()


def _any_nan(values: Any) -> bool:
    """Returns True if the numbers of several steps contain NaN. Accepts values that aren't numbers."""
    import numpy as np  # A step that returns several results in one call has loaded NumPy.

    arrays = values.values() if isinstance(values, Mapping) else [values]
    return not all(
        isinstance(array, np.ndarray) and array.dtype.kind in "iufb" and not np.isnan(array).any() for array in arrays
    )
