"""`fastsup.bind`, and the steps that `fastsup.bind_batches` creates with TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fastsup.runtime  # noqa: F401  (its error names the missing extra if TensorFlow isn't installed)
from fastsup.steps.batch_call import BatchCall, as_arguments
from fastsup.steps.fused import fused_step, without_instance
from fastsup.steps.native import Bound

__all__ = ["BatchStep", "BoundStep", "bind"]


def _result_specs(step: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns the structure of a step function's result, with tensors or specs, or None if it is unknown."""
    step, instance = without_instance(step)
    trace = getattr(step, "get_concrete_function", None)
    return None if trace is None else trace(*instance, *args, **kwargs).structured_outputs


class BoundStep(Bound):
    """A step with bound arguments, created by `fastsup.bind`."""

    def result_specs(self) -> Any:
        """Returns the structure of a step's results, with tensors or specs, or None if it is unknown."""
        return _result_specs(self.step, self.args, self.kwargs)

    def fuse_steps(self, fuse: str) -> Any:
        """Returns a step that can run several steps in one call if XLA compiles it.

        Args:
          fuse: "auto" or "always", as for `fastsup.loop.StepLoop`.
        """
        return fused_step(self, fuse)


class BatchStep(BatchCall):
    """A step that takes the next batch, created by `fastsup.bind_batches`.

    Args:
      step: the step function.
      batches: the iterator of batches.
      args: tuple of the positional arguments before the batch.
      kwargs: dict of the keyword arguments.
    """

    def result_specs(self) -> Any:
        """Returns the structure of a step's results, like `BoundStep.result_specs`."""
        spec = getattr(self.batches, "element_spec", None)
        return None if spec is None else _result_specs(self.step, (*self.args, *as_arguments(spec)), self.kwargs)

    def fuse_steps(self, fuse: str) -> Any:
        """Returns a step that can run several steps in one call if XLA compiles it.

        Args:
          fuse: "auto" or "always", as for `fastsup.loop.StepLoop`.
        """
        return fused_step(self, fuse)


def bind(step: Callable[..., Any], /, *args: Any, **kwargs: Any) -> BoundStep:
    """Binds arguments to a step function, for use in a `StepLoop`.

    A loop calls the step repeatedly with the same arguments, such as a model, or a tf.data iterator from which the step
    function takes elements. No Python code runs between steps of a `fastsup.function`.

    Args:
      step: the step function: a `fastsup.function`, a `tf.function`, or any callable.
      *args: its positional arguments.
      **kwargs: its keyword arguments.

    Returns:
      A callable without arguments. If a tf.data iterator is among the arguments, a `tf.errors.OutOfRangeError` of the
      step function means that there are no more elements. The callable then raises StopIteration, which ends a loop.

    Raises:
      TypeError: If `step` can't be called.
    """
    return BoundStep(step, args, kwargs)
