"""`install(functions=True, keras=True)`: lifts `tf.function`s, and accelerates Keras models when they are compiled.

TensorFlow runs a function's calls until they have taken as long as lifting takes. A program with many functions that
are called a few times is therefore as fast as without fastsup. Functions that can't be lifted run as before.
"""

from __future__ import annotations

import functools
import os
import types
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from tensorflow.python.eager.polymorphic_function import polymorphic_function

from fastsup.eager.calls import CallCount
from fastsup.eager.function import NOT_EARNED, lifted_function, tf_function

__all__ = ["LiftingReport", "LiftingRow", "compile_and_accelerate", "function", "report"]

_MOST_ROWS = 1000
# The counts of calls to the functions that `function` created, by the Python function's name and place.
_counts: dict[tuple[str, str], CallCount] = {}
# The living accelerated models, and the number of all that were accelerated.
_models: weakref.WeakSet[Any] = weakref.WeakSet()
_accelerated = 0
_KERAS = os.path.join("keras", "src", "")


@functools.wraps(tf_function)
def function(func: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Creates a `tf.function`, which is lifted once its calls have taken as long as lifting takes."""
    made = tf_function(func, *args, **kwargs)
    if isinstance(made, polymorphic_function.Function):
        return _lifted(made)

    @functools.wraps(made)
    def decorator(inner: Callable[..., Any]) -> Any:
        return _lifted(made(inner))

    return decorator


def _lifted(made: Any) -> Any:
    lifted = lifted_function(made, fallback="silent", earns=True)
    if len(_counts) < _MOST_ROWS:
        _counts.setdefault(_place_of(made), lifted.calls)
    return lifted


def _place_of(made: Any) -> tuple[str, str]:
    """Returns the name of a function, and the file and line of its code."""
    code = made._key_for_call_stats
    if isinstance(code, types.CodeType):
        return getattr(code, "co_qualname", code.co_name), f"{code.co_filename}:{code.co_firstlineno}"
    return str(made.name), ""


def compile_and_accelerate(compile_model: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps Keras's `compile` so that it then accelerates the model.

    Args:
      compile_model: Keras's method.

    Returns:
      The replacement for the method.
    """

    @functools.wraps(compile_model)
    def compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = compile_model(self, *args, **kwargs)
        _accelerate(self)
        return result

    return compile


def _accelerate(model: Any) -> None:
    global _accelerated
    import keras

    from fastsup.keras.accelerate import accelerate_model, acceleration_of

    if keras.backend.backend() != "tensorflow" or not isinstance(model, keras.Model):
        return
    if acceleration_of(model) is None:
        accelerate_model(model, fallback="silent", earns=True)
        _models.add(model)
        _accelerated += 1


class LiftingRow(NamedTuple):
    """Lifting status of one function.

    Attributes:
      name: the qualified name of the Python function.
      place: its file and line.
      lifted: number of calls that a lifted graph ran.
      by_tensorflow: number of calls that TensorFlow ran.
      why_not_lifted: reason why TensorFlow ran calls. Empty if only traces called the function, or it was lifted later.
    """

    name: str
    place: str
    lifted: int
    by_tensorflow: int
    why_not_lifted: str


class LiftingReport(NamedTuple):
    """Lifting status of a program's functions and models.

    Attributes:
      rows: a `LiftingRow` for each called function, the one with the most calls first. Keras's own functions are in
        `model_reports`.
      models: number of compiled Keras models.
      model_reports: the name and `fastsup.keras.report` of each model that still exists.
      saved_secs: estimate of the seconds that lifted calls saved, based on the cost of TensorFlow's call of a small
        function. Excludes savings in Keras's own work per batch, and those of calls that run many compiled steps.
    """

    rows: tuple[LiftingRow, ...]
    models: int
    model_reports: tuple[tuple[str, Any], ...]
    saved_secs: float

    def __str__(self) -> str:
        lines = []
        names = [f"{row.name} ({os.path.basename(row.place)})" for row in self.rows]
        width = max(map(len, names), default=0)
        if names:
            lines.append(f"{'function':{width}}  lifted calls  TensorFlow's")
        for name, row in zip(names, self.rows, strict=True):
            line = f"{name:{width}}  {row.lifted:>12,}  {row.by_tensorflow:>12,}  {row.why_not_lifted}"
            lines.append(line.rstrip())
        gone = self.models - len(self.model_reports)
        lines.append(f"Keras models: {self.models:,}" + (f" ({gone:,} deleted since)" if gone else ""))
        for name, found in self.model_reports:
            lines += [f"  {name}: {each}" for each in found if each.called]
        lines.append(f"Saved by lifted calls, at least: {self.saved_secs:,.2f} s")
        return "\n".join(lines)


def report() -> LiftingReport:
    """Returns the status of the functions and models since `install`."""
    rows = []
    counts = {id(counted): counted for counted in _counts.values()}
    for (name, place), counted in list(_counts.items()):
        if _KERAS in place or not (counted.lifted or counted.by_tensorflow):
            continue
        why_not = "" if counted.lifted else counted.why_not or NOT_EARNED
        rows.append(LiftingRow(name, place, counted.lifted, counted.by_tensorflow, why_not))
    rows.sort(key=lambda row: row.lifted + row.by_tensorflow, reverse=True)
    reports: list[tuple[str, Any]] = []
    if _accelerated:
        from fastsup.keras.report import functions_of
        from fastsup.keras.report import report as report_of

        for model in sorted(_models, key=lambda model: str(model.name)):
            reports.append((str(model.name), report_of(model)))
            counts.update((id(part.calls), part.calls) for part in functions_of(model))
    calls = sum(counted.lifted for counted in counts.values())
    return LiftingReport(tuple(rows), _accelerated, tuple(reports), calls * _saved_of_a_call() if calls else 0.0)


def _saved_of_a_call() -> float:
    from fastsup.profile.profiler import tensorflow_call_ns

    return 1e-9 * tensorflow_call_ns()
