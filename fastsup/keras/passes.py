"""`fit` and `evaluate` of an accelerated model: what they are called with decides whether steps may be made ahead."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import keras

from fastsup.keras.ahead import Pass
from fastsup.keras.array_input import array_input
from fastsup.keras.callbacks import CallInTurn, flat_callbacks, looks_between_batches, reads_logs

__all__ = ["with_pass"]


def with_pass(
    method: Callable[..., Any], is_fit: bool, passes: dict[str, Pass], takes_arrays: Callable[[str], bool]
) -> Any:
    """Makes what stands in the place of a model's `fit` or `evaluate`.

    Args:
      method: the model's method.
      is_fit: whether it is `fit`.
      passes: where the passes under way are, by kind of function.
      takes_arrays: function that tells whether batches of arrays may be copied in the place of Keras's input pipeline,
        for a kind of function.

    Returns:
      A callable with the same arguments.
    """
    signature = inspect.signature(method)

    @functools.wraps(method)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return method(*args, **kwargs)  # Which says what is wrong.
        bound.apply_defaults()
        given = bound.arguments
        before = dict(passes)
        if is_fit:
            passes["train"] = _pass("train", given, given.get("steps_per_epoch"))
            passes["test"] = _pass("test", given, given.get("validation_steps"))
        elif not given.get("kwargs", {}).get("_use_cached_eval_dataset"):
            passes["test"] = _pass("test", given, given.get("steps"))
        _call_in_turn(given)
        if takes_arrays("train" if is_fit else "test"):
            _take_arrays(is_fit, given)
        try:
            return method(*bound.args, **bound.kwargs)
        finally:
            passes.update(before)

    return run


def _pass(kind: str, given: dict[str, Any], steps: int | None) -> Pass:
    callbacks = flat_callbacks(given.get("callbacks"))
    looks = looks_between_batches(callbacks, kind)
    most = keras.config.max_steps_per_epoch()
    if most:
        steps = most if not steps else min(steps, most)
    # A progress bar shows the logs of each batch.
    shows_logs = given.get("verbose") not in (0, 2) or reads_logs(callbacks, kind)
    return Pass(f"the callback {looks} looks at each batch" if looks else "", shows_logs, steps or None)


def _call_in_turn(given: dict[str, Any]) -> None:
    """Adds a `CallInTurn`, unless a callback asks to be called from a thread."""
    callbacks = given.get("callbacks")
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return
    flat = flat_callbacks(callbacks)
    if not any(getattr(callback, "async_safe", False) for callback in flat):
        given["callbacks"] = [*flat, CallInTurn()]


def _take_arrays(is_fit: bool, given: dict[str, Any]) -> None:
    """Puts an `ArrayInput` in the place of arrays among the arguments."""
    if is_fit and given.get("validation_split") and given.get("validation_data") is None:
        return
    found = array_input(
        given.get("x"),
        given.get("y"),
        given.get("sample_weight"),
        batch_size=given.get("batch_size"),
        steps=given.get("steps_per_epoch") if is_fit else given.get("steps"),
        shuffle=given.get("shuffle", False),
        class_weight=given.get("class_weight"),
    )
    if found is not None:
        given.update(x=found, y=None, sample_weight=None)
        if "class_weight" in given:
            given["class_weight"] = None
