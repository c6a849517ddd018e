"""The numbers in the result of a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

Values = Callable[[Any], Any]


def named_numbers(result: Any, default_name: str = "loss") -> dict[str, float]:
    """Returns the numbers in a result, by name.

    Args:
      result: a number, or a mapping of names to numbers. A number is anything that `float` takes: a Python or NumPy
        number, a tensor or array of one element.
      default_name: name for a number that has none.

    Returns:
      Dictionary of names to floats.

    Raises:
      TypeError: `result` is something else.
    """
    items = result.items() if isinstance(result, Mapping) else [(default_name, result)]
    return {str(name): _number(name, value) for name, value in items}


def _number(name: Any, value: Any) -> float:
    if hasattr(value, "detach"):
        value = value.detach()  # PyTorch warns of a conversion of a tensor that requires a gradient.
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except (TypeError, ValueError) as error:
        raise TypeError(
            "The step must return a number or a mapping of names to numbers, or values= must say what to take of "
            f"it. {name}: {value!r}. In a session, the hook's `fetches` say what it reads."
        ) from error


def check_values(values: Values | None) -> Values:
    """Checks the argument `values` of a hook.

    Args:
      values: function that takes numbers out of a result, or None.

    Returns:
      The function; for None, one that returns the result itself.

    Raises:
      TypeError: `values` can't be called.
    """
    if values is None:
        return lambda result: result
    if not callable(values):
        raise TypeError(f"values must be a function of the step's result, or None, got {values!r}")
    return values
