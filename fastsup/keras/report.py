"""`fastsup.keras.report`: the acceleration status of a model's functions."""

from __future__ import annotations

from typing import Any, NamedTuple

from fastsup.eager.function import Function
from fastsup.keras.accelerate import KINDS, NOT_KERAS, Acceleration, acceleration_of
from fastsup.keras.model_function import ModelFunction
from fastsup.keras.step_functions import LiftedPredictFunction, LiftedStepFunction

__all__ = ["FunctionReport", "Report", "report"]


class FunctionReport(NamedTuple):
    """Acceleration status of one function.

    Attributes:
      name: "train", "test" or "predict".
      called: Whether it was called since it was created.
      lifted: Whether all its graphs are lifted.
      why_not_lifted: reason why not, or "" if they are, or if it wasn't called.
      executor: executor that runs it.
      seconds: seconds per execution if "auto" measured it, or None.
      fused: Whether many steps currently run in one compiled call when nothing inspects the model in between.
      why_not_fused: reason why they don't, or "" if they do.
    """

    name: str
    called: bool
    lifted: bool
    why_not_lifted: str
    executor: str
    seconds: float | None
    fused: bool = False
    why_not_fused: str = ""

    def __str__(self) -> str:
        if not self.called:
            return f"{self.name}: not called yet"
        if not self.lifted:
            return f"{self.name}: not lifted: {self.why_not_lifted}"
        cost = "" if self.seconds is None else f", {1e6 * self.seconds:,.0f} µs an execution"
        many = ", many steps in one compiled call" if self.fused else ""
        return f"{self.name}: lifted, {self.executor}{cost}{many}"


class Report(tuple[FunctionReport, ...]):
    """The `FunctionReport`s of a model. Its text has a line for each function."""

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Lets a notebook show the text."""
        printer.text(str(self))

    def __str__(self) -> str:
        return "\n".join(map(str, self))


def report(model: Any) -> Report:
    """Reports which functions of an accelerated model are lifted, why others aren't, and which executors run them.

    Args:
      model: a model that was passed to `fastsup.keras.accelerate`.

    Returns:
      A `Report`, which is a tuple with a `FunctionReport` for each function. You can print it.

    Raises:
      ValueError: If the model isn't accelerated.
    """
    acceleration = acceleration_of(model)
    if acceleration is None:
        raise ValueError(f"model must be one that was passed to fastsup.keras.accelerate, got {model!r}.")
    return Report(_of(kind, getattr(model, f"{kind}_function"), acceleration, model) for kind in KINDS)


def functions_of(model: Any) -> list[Function]:
    """Returns the functions that an accelerated model calls for its steps.

    Args:
      model: the model.
    """
    return [part for kind in KINDS for part in _parts(getattr(model, f"{kind}_function"))]


def _parts(function: Any) -> list[Function]:
    function = function.lifted if isinstance(function, ModelFunction) else function
    parts = [function]
    if isinstance(function, LiftedStepFunction):
        parts = [function.on_iterator, function.on_data, *function.traces.values()]
    elif isinstance(function, LiftedPredictFunction):
        parts = [function.on_list, function.on_data]
    return [part for part in parts if isinstance(part, Function)]


def _of(kind: str, function: Any, acceleration: Acceleration, model: Any) -> FunctionReport:
    reason, executor = acceleration.why_not_lifted.get(kind, ""), acceleration.executor
    ahead = function if isinstance(function, ModelFunction) else None
    called = [part for part in _parts(function) if part.lifted or part.why_not_lifted]
    function = function if ahead is None else ahead.lifted
    if not called and ahead is not None and ahead.fused:
        # No step has run on its own.
        return FunctionReport(kind, True, True, "", "inline", None, True)
    if not called:
        return FunctionReport(kind, bool(reason) and function is not None, False, reason, executor, None)
    part = next((part for part in called if not part.lifted), called[0])
    fused = False if ahead is None else ahead.fused
    why_not_fused = (acceleration.why_not_fused(model) or NOT_KERAS) if ahead is None else ahead.why_not_fused
    return FunctionReport(
        kind, True, part.lifted, part.why_not_lifted, part.executor, part.seconds, fused, why_not_fused
    )
