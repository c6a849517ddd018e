"""`fit`, `evaluate` and `predict` of an accelerated model: their arguments decide whether steps may be made ahead."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import MethodType
from typing import Any

import keras

from fastsup.keras.ahead import Pass
from fastsup.keras.callbacks import (
    CallInTurn,
    batches_until_look,
    flat_callbacks,
    looks_between_batches,
    reads_logs,
)
from fastsup.keras.interrupts import DroppedInterrupt

_arrays: Any
try:
    from fastsup.keras import array_input

    _arrays = array_input
except ImportError:  # A release of Keras whose adapters of arrays are others: it makes the batches itself.
    _arrays = None

__all__ = ["with_pass"]

# The arguments that `validation_split` splits.
_ARRAYS = ("x", "y", "sample_weight")
# For each method, the kinds of functions that it calls, and the argument that says how many steps an epoch has.
_KINDS = {
    "fit": {"train": "steps_per_epoch", "test": "validation_steps"},
    "evaluate": {"test": "steps"},
    "predict": {"predict": "steps"},
}


def with_pass(
    method: MethodType,
    name: str,
    passes: dict[str, Pass],
    takes_arrays: Callable[[str], bool],
    release: Callable[[str], None],
) -> Any:
    """Makes what stands in the place of a model's `fit`, `evaluate` or `predict`.

    Args:
      method: the model's method: Keras's, bound to the model.
      name: its name.
      passes: where the passes under way are, by kind of function.
      takes_arrays: function that tells whether a kind of function takes an `ArrayInput` in the place of arrays.
      release: function that has a kind of function release what it has of a pass that has ended.

    Returns:
      A callable with the same arguments.
    """
    signature = inspect.signature(method)

    def call(*args: Any, **kwargs: Any) -> Any:
        # Looked up now: while a profiler is on, Keras's method is another one.
        return getattr(keras.Model, name)(method.__self__, *args, **kwargs)

    @functools.wraps(method)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return call(*args, **kwargs)  # Which says what is wrong.
        bound.apply_defaults()
        given = bound.arguments
        if given.get("kwargs", {}).get("_use_cached_eval_dataset"):
            return call(*args, **kwargs)  # The validation of a `fit`, which has begun its pass.
        before = dict(passes)
        begun = {kind: _pass(kind, given, given.get(steps)) for kind, steps in _KINDS[name].items()}
        passes.update(begun)
        dropped = DroppedInterrupt()
        _call_in_turn(given, dropped)
        try:
            if _arrays is not None:
                kind, steps = next(iter(_KINDS[name].items()))
                if takes_arrays(kind):
                    _take_arrays(given, given.get(steps), gives_batches=kind != "predict")
                if given.get("validation_data") is not None and takes_arrays("test"):
                    _take_validation_arrays(given)
            with dropped.watched():
                return call(*bound.args, **bound.kwargs)
        finally:
            passes.update(before)
            for kind in begun:
                release(kind)

    return run


def _pass(kind: str, given: dict[str, Any], steps: int | None) -> Pass:
    callbacks = flat_callbacks(given.get("callbacks"))
    looks = looks_between_batches(callbacks, kind)
    # Before Keras 3.10 there is no such limit.
    most = keras.config.max_steps_per_epoch() if hasattr(keras.config, "max_steps_per_epoch") else None
    if most:
        steps = most if not steps else min(steps, most)
    # A progress bar shows the logs of each batch.
    shows_logs = given.get("verbose") not in (0, 2) or reads_logs(callbacks, kind)
    return Pass(
        f"the callback {looks} looks at each batch" if looks else "",
        # The outputs of each batch are what `predict` returns.
        shows_logs or kind == "predict",
        steps or None,
        functools.partial(batches_until_look, callbacks, kind),
    )


def _call_in_turn(given: dict[str, Any], dropped: DroppedInterrupt) -> None:
    """Adds a `CallInTurn`, unless a callback asks to be called from a thread."""
    callbacks = given.get("callbacks")
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return
    flat = flat_callbacks(callbacks)
    if not any(getattr(callback, "async_safe", False) for callback in flat):
        given["callbacks"] = [*flat, CallInTurn(dropped)]


def _take_arrays(given: dict[str, Any], steps: int | None, gives_batches: bool) -> None:
    """Puts an `ArrayInput` in the place of the arrays among the arguments.

    Args:
      given: the arguments.
      steps: steps of an epoch, or None.
      gives_batches: as for `ArrayInput`.
    """
    arrays = tuple(map(given.get, _ARRAYS))
    splits = given.get("validation_split") and given.get("validation_data") is None
    if splits:
        try:
            arrays, validation_data = _arrays.split(arrays, given["validation_split"])
        except Exception:
            return  # Keras says what is wrong.
    found = _arrays.array_input(
        *arrays,
        batch_size=given.get("batch_size"),
        steps=steps,
        shuffle=given.get("shuffle", False),
        class_weight=given.get("class_weight"),
        gives_batches=gives_batches,
    )
    if found is not None:
        given["x"] = found
        given.update({name: None for name in ("y", "sample_weight", "class_weight") if name in given})
        if splits:
            given.update(validation_data=validation_data, validation_split=0.0)


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
