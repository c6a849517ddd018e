"""`fastsup.bind`: a step function with its arguments, as a step of a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastsup.eager.bound_step import Bound

__all__ = ["BoundStep", "bind"]


class BoundStep(Bound):
    """A step without arguments. `fastsup.bind` makes it."""


def bind(step: Callable[..., Any], /, *args: Any, **kwargs: Any) -> BoundStep:
    """Makes a step for `StepLoop` of a step function that takes arguments.

    A loop calls the step with the same arguments again and again: an iterator of tf.data from which the step function
    takes elements, a model. Between two steps of a `fastsup.function` no Python code runs.

    Args:
      step: the step function: a `fastsup.function`, a `tf.function`, or any callable.
      *args: its positional arguments.
      **kwargs: its keyword arguments.

    Returns:
      A callable without arguments. If an iterator of tf.data is among the arguments, a `tf.errors.OutOfRangeError` of
      the step function means that there are no more elements: the callable raises StopIteration, which ends a loop.

    Raises:
      TypeError: `step` can't be called.
    """
    return BoundStep(step, args, kwargs)
