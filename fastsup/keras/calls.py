"""`fit`, `evaluate` and `predict` of an accelerated model. Their arguments decide if steps may run ahead."""

from __future__ import annotations

import functools
import inspect
from types import MethodType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from fastsup.core.probe import RECORDS_METHOD
from fastsup.keras.callbacks import CallInTurn, flat_callbacks
from fastsup.keras.interrupts import DroppedInterrupt
from fastsup.keras.model_function import Call
from fastsup.keras.step_functions import LiftedPredictFunction

_inputs: Any
try:
    from fastsup.keras import inputs

    _inputs = inputs if inputs.takes_adapters() else None
except ImportError:  # In this Keras release, array adapters are different, so Keras creates the batches.
    _inputs = None

__all__ = ["is_replaced", "original_of", "replaced_method"]

# Keras's default batch size.
_BATCH_SIZE = 32
_ARRAYS = ("x", "y", "sample_weight")
# For each method, the kind of steps that it runs, and the argument with the number of steps in an epoch.
_KINDS = {"fit": ("train", "steps_per_epoch"), "evaluate": ("test", "steps"), "predict": ("predict", "steps")}


def replaced_method(method: MethodType, name: str, acceleration: Any) -> Any:
    """Creates the replacement for a model's `fit`, `evaluate` or `predict`.

    Args:
      method: Keras's method, bound to the model.
      name: its name.
      acceleration: the `Acceleration` of the model.

    Returns:
      A callable with the same arguments.
    """
    signature = inspect.signature(method)

    def call(*args: Any, **kwargs: Any) -> Any:
        # Look it up in each call, because an active profiler replaces Keras's method.
        return getattr(keras.Model, name)(method.__self__, *args, **kwargs)

    @functools.wraps(method)
    def run(*args: Any, **kwargs: Any) -> Any:
        if name == "predict":
            outputs = _predict_one_batch(method.__self__, acceleration, args, kwargs)
            if outputs is not None:
                return outputs
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return call(*args, **kwargs)  # Keras reports the mistake.
        bound.apply_defaults()
        given = bound.arguments
        if given.get("kwargs", {}).get("_use_cached_eval_dataset"):
            return call(*args, **kwargs)  # This is the validation of a `fit`, which already replaced its input.
        replaced = [] if _inputs is None else _replace_inputs(method.__self__, name, given, acceleration)
        dropped = DroppedInterrupt()
        _call_in_turn(given, dropped)
        try:
            with dropped.watched():
                return call(*bound.args, **bound.kwargs)
        finally:
            for loop_input in replaced:
                loop_input.close()

    run._fastsup_original = method  # type: ignore[attr-defined]
    return run


def _predict_one_batch(model: Any, acceleration: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Predicts one array that fits into one batch. Returns None if something inspects the call, or for other calls.

    Reinforcement learning calls it for each action. Adapters, iterators and callback lists would take most of the time.
    """
    x: Any = args[0] if len(args) == 1 else kwargs.get("x")
    if type(x) is not np.ndarray or x.dtype.kind != "f" or not kwargs.keys() <= {"x", "batch_size", "verbose"}:
        return None
    size: Any = kwargs.get("batch_size", _BATCH_SIZE)
    verbose = kwargs.get("verbose")
    if len(args) > 1 or type(verbose) is not int or verbose != 0 or type(size) is not int or x.ndim < 2:
        return None
    if not 0 < len(x) <= size or not model.built:
        return None
    if hasattr(keras.Model.predict, RECORDS_METHOD):
        return None  # A profiler records the call.
    function = acceleration.make_function("predict")
    if function is None or not isinstance(function.lifted, LiftedPredictFunction):
        return None
    if getattr(
        model, "stop_predicting", True
    ):  # Keras's models track each attribute assignment, which takes longer than a step.
        model.stop_predicting = False
    outputs = function.lifted.on_data(x.astype(keras.config.floatx()))
    # Return new arrays to the caller, as Keras does.
    if isinstance(outputs, tf.Tensor):
        return np.array(outputs)
    return keras.tree.map_structure(np.array, outputs)


def is_replaced(method: Any) -> bool:
    """Returns True for a function created by `replaced_method`."""
    return hasattr(method, "_fastsup_original")


def original_of(method: Any) -> Any:
    """Returns the method that was replaced, or the method itself if it isn't a replacement."""
    return getattr(method, "_fastsup_original", method)


def _replace_inputs(model: Any, name: str, given: dict[str, Any], acceleration: Any) -> list[Any]:
    """Replaces the inputs among a method's arguments with `LoopInput`s, and returns them."""
    kind, steps = _KINDS[name]
    call = _call_of(model, kind, given, given.get(steps))
    if name == "fit":
        try:
            _split(given)
        except Exception:
            return []  # Keras reports the mistake.
    replaced = []
    if not _inputs.is_adapter(given.get("x")) and acceleration.make_function(kind) is not None:
        options = {"shuffle": given.get("shuffle", False), "class_weight": given.get("class_weight")}
        arrays = {key: given.get(key) for key in _ARRAYS}
        given["x"] = _inputs.LoopInput(
            call,
            acceleration,
            **arrays,
            batch_size=given.get("batch_size"),
            steps_per_epoch=call.steps,
            **options,
        )
        given.update({key: None for key in ("y", "sample_weight", "class_weight") if key in given})
        replaced.append(given["x"])
    # The program's own `evaluate` gets the same arguments as `fit`.
    validation = _validation(given) if is_replaced(model.evaluate) else None
    if validation is not None and acceleration.make_function("test") is not None:
        call = _call_of(model, "test", given, given.get("validation_steps"))
        given["validation_data"] = _inputs.LoopInput(
            call,
            acceleration,
            **dict(zip(_ARRAYS, validation, strict=True)),
            batch_size=given.get("validation_batch_size") or given.get("batch_size"),
            steps_per_epoch=call.steps,
            shuffle=False,
        )
        replaced.append(given["validation_data"])
    return replaced


def _call_of(model: Any, kind: str, given: dict[str, Any], steps: int | None) -> Call:
    callbacks = given.get("callbacks")
    flat = flat_callbacks(callbacks)
    # Before Keras 3.10, there is no such limit.
    most = keras.config.max_steps_per_epoch() if hasattr(keras.config, "max_steps_per_epoch") else None
    if most:
        steps = most if not steps else min(steps, most)
    # The program may add callbacks to its own `CallbackList`.
    is_list = isinstance(callbacks, keras.callbacks.CallbackList)
    current = functools.partial(flat_callbacks, callbacks) if is_list else lambda: flat
    return Call(model, kind, current, given.get("verbose") not in (0, 2), steps or None)


def _call_in_turn(given: dict[str, Any], dropped: DroppedInterrupt) -> None:
    """Adds a `CallInTurn`, unless a callback requests calls from a thread."""
    callbacks = given.get("callbacks")
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return
    flat = flat_callbacks(callbacks)
    if not any(getattr(callback, "async_safe", False) for callback in flat):
        given["callbacks"] = [*flat, CallInTurn(dropped)]


def _split(given: dict[str, Any]) -> None:
    """Splits the arrays among `fit`'s arguments by `validation_split`, as `fit` does."""
    if given["validation_split"] and given["validation_data"] is None:
        arrays, validation_data = _inputs.split(tuple(map(given.get, _ARRAYS)), given["validation_split"])
        given.update(zip(_ARRAYS, arrays, strict=True), validation_data=validation_data, validation_split=0.0)


def _validation(given: dict[str, Any]) -> tuple[Any, Any, Any] | None:
    """Returns x, y and weights for validation, or None if there are none or Keras refuses them."""
    data = given.get("validation_data")
    if data is None or _inputs.is_adapter(data):
        return None
    try:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    except ValueError:
        return None  # Keras reports the mistake.
    return x, y, sample_weight
