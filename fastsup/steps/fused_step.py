"""A step of a loop that makes several steps in one compiled call, where that is faster."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from fastsup.steps.bind import BatchStep
from fastsup.steps.fused_calls import FusedCalls, fused_calls

__all__ = ["FusedStep", "fused_step"]


class FusedStep:
    """A step that a loop calls for one step, or asks for several by `run_steps`.

    Args:
      single: makes one step.
      calls: makes several.

    Attributes:
      calls: the argument.
    """

    def __init__(self, single: Callable[[], Any], calls: FusedCalls) -> None:
        self._single = single
        self.calls: FusedCalls = calls
        calls.single = single
        self._error: BaseException | None = None

    def __repr__(self) -> str:
        return f"<fused {self._single!r}>"

    def __call__(self) -> Any:
        """Makes one step."""
        self._raise_kept()
        return self._single()

    @property
    def fallback_reason(self) -> str:
        """Why steps aren't made at once now; an empty string if they are."""
        return self.calls.fallback_reason

    @property
    def fused(self) -> bool:
        """True if steps are made at once now, where no hook is due between them."""
        return self.calls.fused

    @property
    def has_more(self) -> bool:
        """True if the next call returns steps that are made already, or raises an error that has happened."""
        is_error = self._error is not None and not isinstance(self._error, StopIteration)
        return is_error or self.calls.has_more

    def run_steps(self, limit: int, seconds: float, with_results: bool) -> tuple[int, Any, Any]:
        """Makes at least one step.

        Args:
          limit: the most steps to make.
          seconds: how long they may take; one step is made in any case.
          with_results: whether something takes the results of all steps.

        Returns:
          The number of steps, the result of the last one, and the results of all as arrays of shape [steps, ...] in the
          result's structure: None for one step, or without `with_results`.

        Raises:
          StopIteration: all batches were taken, or the step function has raised it.
          Exception: the error of the first of the steps.
        """
        self._raise_kept()
        if self.calls.is_next():
            made = self.calls.make_steps(limit, seconds, with_results)
            if made is not None:
                return made
        return self._run_singly(self.calls.most_alone(1 if with_results else limit, seconds))

    def begin_input(self, blocks: Any) -> None:
        """Takes batches from another source from now on, whose batches have the same structure.

        Args:
          blocks: the source. The end of the one before is forgotten.
        """
        self.calls.begin_input(blocks)
        self._error = None

    def _raise_kept(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _run_singly(self, limit: int) -> tuple[int, Any, None]:
        made, result, single = 0, None, self._single
        started = perf_counter()
        try:
            for _ in range(limit):
                result = single()
                made += 1
        except BaseException as error:
            if not made:
                raise
            self._error = error  # The loop counts the steps before it, and then asks for the next one.
        self.calls.record_alone(made, perf_counter() - started)
        return made, result, None


def fused_step(step: Any, fuse: str) -> Any:
    """Makes a step that can make several steps at once, if XLA compiles the step function.

    Args:
      step: a `BoundStep` or a `BatchStep`.
      fuse: "auto" or "always".

    Returns:
      A `FusedStep`; or the step itself, if it can't make several steps at once.

    Raises:
      RuntimeError: with "always", it can't.
    """
    calls = fused_calls(step, fuse)
    if isinstance(calls, str):
        step.fallback_reason = calls
        return step
    single = step if calls.blocks is None else BatchStep(step.step, calls.blocks, step.args, step.kwargs)
    return FusedStep(single, calls)
