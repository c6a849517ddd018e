"""`fit` and `evaluate` of an accelerated model: what they are called with decides whether steps may be made ahead."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import keras

from fastsup.keras.ahead import Pass
from fastsup.keras.callbacks import CallInTurn, flat_callbacks, looks_between_batches, reads_logs

_arrays: Any
try:
    from fastsup.keras import array_input

    _arrays = array_input
except ImportError:  # A release of Keras whose adapters of arrays are others: it makes the batches itself.
    _arrays = None

__all__ = ["with_pass"]


def with_pass(
    method: Callable[..., Any],
    is_fit: bool,
    passes: dict[str, Pass],
    takes_arrays: Callable[[str], bool],
    release: Callable[[str], None],
) -> Any:
    """Makes what stands in the place of a model's `fit` or `evaluate`.

    Args:
      method: the model's method.
      is_fit: whether it is `fit`.
      passes: where the passes under way are, by kind of function.
      takes_arrays: function that tells whether a kind of function takes an `ArrayInput` in the place of arrays.
      release: function that has a kind of function release what it has of a pass that has ended.

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
        if given.get("kwargs", {}).get("_use_cached_eval_dataset"):
            return method(*args, **kwargs)  # The validation of a `fit`, which has begun its pass.
        before = dict(passes)
        if is_fit:
            begun = {
                "train": _pass("train", given, given.get("steps_per_epoch")),
                "test": _pass("test", given, given.get("validation_steps")),
            }
        else:
            begun = {"test": _pass("test", given, given.get("steps"))}
        passes.update(begun)
        _call_in_turn(given)
        try:
            if _arrays is not None:
                if takes_arrays("train" if is_fit else "test"):
                    _take_arrays(given, given.get("steps_per_epoch") if is_fit else given.get("steps"))
                if given.get("validation_data") is not None and takes_arrays("test"):
                    _take_validation_arrays(given)
            return method(*bound.args, **bound.kwargs)
        finally:
            passes.update(before)
            for kind in begun:
                release(kind)

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


def _take_arrays(given: dict[str, Any], steps: int | None) -> None:
    """Puts an `ArrayInput` in the place of the arrays among the arguments.

    Args:
      given: the arguments.
      steps: steps of an epoch, or None.
    """
    if given.get("validation_split") and given.get("validation_data") is None:
        return  # Keras takes the arrays apart.
    found = _arrays.array_input(
        given.get("x"),
        given.get("y"),
        given.get("sample_weight"),
        batch_size=given.get("batch_size"),
        steps=steps,
        shuffle=given.get("shuffle", False),
        class_weight=given.get("class_weight"),
    )
    if found is not None:
        given.update(x=found, y=None, sample_weight=None)
        if "class_weight" in given:
            given["class_weight"] = None


def _take_validation_arrays(given: dict[str, Any]) -> None:
    """The same for `validation_data`."""
    try:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(given["validation_data"])
    except ValueError:
        return  # Keras says it.
    found = _arrays.array_input(
        x,
        y,
        sample_weight,
        batch_size=given.get("validation_batch_size") or given.get("batch_size"),
        steps=given.get("validation_steps"),
        shuffle=False,
        class_weight=None,
    )
    if found is not None:
        given["validation_data"] = found
