"""`fastsup.keras.accelerate`, which lifts the steps of a Keras model."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import MethodType
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.distribute import distribute_lib
from tensorflow.python.platform import tf_logging as logging

from fastsup.core.checks import check_choice, check_fuse, suggest_keywords
from fastsup.core.probe import RECORDS_METHOD
from fastsup.eager import tf_abi
from fastsup.eager.calls import scope_of_devices
from fastsup.eager.function import FALLBACKS
from fastsup.keras.calls import original_of, replaced_method
from fastsup.keras.metrics import replace_metrics_methods
from fastsup.keras.model_function import ModelFunction
from fastsup.keras.step_functions import (
    LiftedPredictFunction,
    LiftedStepFunction,
    NotAccelerated,
    lift_step_function,
)
from fastsup.runtime.executor import check_executor

__all__ = ["Acceleration", "accelerate", "accelerate_model", "acceleration_of"]

# TensorFlow's default strategy, which applies outside of any scope. (`get_strategy` returns the strategy of the scope.)
_NO_STRATEGY = type(distribute_lib._get_default_strategy())
# Strategies that run in one process, without collective operations on several devices.
_STRATEGIES = (tf.distribute.MirroredStrategy, tf.distribute.OneDeviceStrategy, _NO_STRATEGY)
KINDS = ("train", "test", "predict")
# Profilers also read the following reason.
#: Why a function that is lifted as a whole runs no steps ahead.
NOT_KERAS = "the function wasn't created by Keras, or Keras is older than 3.7"
# Profilers also read the following attribute.
_ATTRIBUTE = "_fastsup_acceleration"


class _MakeLifted:
    """Replaces a model method that creates a function.

    Args:
      acceleration: the acceleration of the model.
      kind: "train", "test" or "predict".
      model: the model.
      original: the method of the model's class, or the program's replacement.
    """

    def __init__(self, acceleration: Acceleration, kind: str, model: Any, original: Callable[..., Any]) -> None:
        self._fastsup_original = original
        self._acceleration, self._kind, self._model = acceleration, kind, model

    def __call__(self, force: bool = False) -> Any:
        """Creates and lifts the function.

        Args:
          force: Whether to create it again if there is one.

        Returns:
          The existing function, or None if this call created it.
        """
        model, attribute = self._model, f"{self._kind}_function"
        if getattr(model, attribute) is not None and not force:
            return getattr(model, attribute)
        setattr(model, attribute, None)
        self._fastsup_original()
        setattr(model, attribute, self._acceleration._lift(self._kind, model, getattr(model, attribute)))
        return None


class Acceleration:
    """The state of an accelerated model.

    Args:
      model: the model.
      executor: the executor mode.
      fallback: what to do if a function can't be lifted.
      fuse: Whether steps run ahead, as for `accelerate`.
      earns: Whether functions are lifted only when that pays off, as for `lifted_function`.
    """

    def __init__(self, model: Any, executor: str, fallback: str, fuse: str, earns: bool) -> None:
        self._model = weakref.ref(model)
        self._earns = earns
        self.executor = executor
        self.fallback = fallback
        self.fuse = fuse
        #: For each kind of function that isn't accelerated, the reason.
        self.why_not_lifted: dict[str, str] = {}

    def install(self) -> None:
        """Replaces the model's methods that create its functions, and the functions that already exist."""
        model = self._model()
        for kind in KINDS:
            name = f"make_{kind}_function"
            made = _MakeLifted(self, kind, model, original_of(getattr(model, name)))
            object.__setattr__(model, name, made)
            # A running call may be reading the function from the model for each batch.
            if getattr(model, f"{kind}_function") is not None:
                made(force=True)
        for name in ("fit", "evaluate", "predict"):
            method = original_of(getattr(model, name))
            if not isinstance(method, MethodType) or _plain(method.__func__) is not _plain(getattr(keras.Model, name)):
                continue  # This is the program's own method, which may add callbacks and change arguments.
            replaced = replaced_method(method, name, self)
            object.__setattr__(model, name, replaced)
        replace_metrics_methods(model, self)

    def make_function(self, kind: str) -> ModelFunction | None:
        """Creates the model's function of a kind, as Keras's methods do. Returns None if it takes no `Epoch`."""
        model: Any = self._model()
        if not model.compiled or model.run_eagerly or model.steps_per_execution > 1 or _is_distributed(model):
            return None
        getattr(model, f"make_{kind}_function")()
        function = getattr(model, f"{kind}_function")
        return function if isinstance(function, ModelFunction) else None

    def lifts_metrics(self, model: Any) -> bool:
        """Returns True if a lifted function may reset and read the metrics of the model now.

        Args:
          model: the model.
        """
        return tf.executing_eagerly() and model.compiled and not model.run_eagerly and not _is_distributed(model)

    def report(self, model: Any) -> Any:
        """Returns the `fastsup.keras.Report` of the model, for a profiler."""
        from fastsup.keras.report import report

        return report(model)

    def takes_epochs(self, kind: str) -> bool:
        """Returns True if the model's function of a kind takes an `Epoch`, or if there is none now."""
        function = getattr(self._model(), f"{kind}_function")
        return function is None or isinstance(function, ModelFunction)

    def _lift(self, kind: str, model: Any, original: Any) -> Any:
        try:
            _check_model(model)
            lifted = lift_step_function(
                kind,
                original,
                model.steps_per_execution,
                f"{model.name}.{kind}_function",
                {"executor": self.executor, "fallback": self.fallback, "earns": self._earns},
                True if model.jit_compile is True and not _is_distributed(model) else None,
            )
        except NotAccelerated as reason:
            self.why_not_lifted[kind] = str(reason)
            text = f"The {kind} function of the model {model.name} isn't lifted: {reason}."
            if self.fallback == "raise":
                raise RuntimeError(f'{text} fallback="warn" lets Keras run it.') from None
            if self.fallback == "warn":
                logging.warning("%s Keras runs it.", text)
            return original
        self.why_not_lifted.pop(kind, None)
        self._check_always_fused(kind, model, lifted)
        if not isinstance(lifted, LiftedStepFunction | LiftedPredictFunction):
            return lifted
        name = f"{model.name}.{kind}_function of many steps"
        return ModelFunction(lifted, kind, self.fuse, self.why_not_fused(model), name)

    def _check_always_fused(self, kind: str, model: Any, lifted: Any) -> None:
        """Reports a function that can't run many steps in one call, if the program requires it."""
        can = isinstance(lifted, LiftedStepFunction | LiftedPredictFunction)
        reason = self.why_not_fused(model) or ("" if can else NOT_KERAS)
        if self.fuse != "always" or not reason:
            return
        text = f'fuse="always" has no effect on the {kind} function of the model {model.name}: {reason}.'
        if model.jit_compile is not True:
            text += " Call model.compile(..., jit_compile=True)."
        if self.fallback == "raise":
            raise RuntimeError(f'{text} fuse="auto" runs its steps one at a time.')
        if self.fallback == "warn":
            logging.warning("%s Its steps run one at a time.", text)

    def why_not_fused(self, model: Any) -> str:
        """Returns the reason why no function of the model runs many steps in one call, or "" if one may.

        Args:
          model: the model.
        """
        if self.fuse == "never":
            return 'fuse="never"'
        if model.jit_compile is not True:
            return "XLA doesn't compile the model: jit_compile isn't True"
        if model.steps_per_execution > 1:
            return f"Keras itself runs {model.steps_per_execution} steps per call (steps_per_execution)"
        if scope_of_devices() is not None:
            return "TensorFlow has several devices"
        return ""


def _plain(method: Any) -> Any:
    """Returns a Keras method, without a profiler's replacement."""
    return getattr(method, RECORDS_METHOD, method)


def _is_distributed(model: Any) -> bool:
    return type(model.distribute_strategy) is not _NO_STRATEGY


def _check_model(model: Any) -> None:
    if model.run_eagerly:
        raise NotAccelerated("the model runs eagerly (run_eagerly=True)")
    strategy = model.distribute_strategy
    if type(strategy) not in _STRATEGIES:
        raise NotAccelerated(f"the model is distributed by a {type(strategy).__name__}")


@suggest_keywords
def accelerate(model: Any, *, executor: str = "auto", fallback: str = "warn", fuse: str = "auto") -> Any:
    """Accelerates the training, evaluation and prediction steps of a Keras model.

    `fit`, `evaluate` and `predict`, with their callbacks and logs, remain Keras's own, and so does the rest of the
    model. Only the functions that they call for each step are replaced, again after each `compile()`. You can
    accelerate a model before it is compiled or built. `compile()`. A model may be accelerated before it is compiled or
    built.

    Args:
      model: a `keras.Model` on the backend "tensorflow".
      executor: as in `fastsup.function`.
      fallback: what to do if a function can't be lifted and Keras runs it instead: "warn" logs the reason once, "raise"
        raises a RuntimeError, "silent" logs nothing. `fastsup.keras.report` contains the reason. The same applies if
        fuse="always" can't take effect.
      fuse: "auto" lets `fit`, `evaluate` and `predict` of a model that XLA compiles (`jit_compile=True`) run many steps
        in one compiled call, if no callback inspects each batch and a timing trial shows that this is faster. "always"
        skips the trial. "never" runs one step at a time. A callback that needs the model only after every Nth batch of
        an epoch sets the attribute `batch_freq`.

    Returns:
      The model.

    Raises:
      TypeError: If `model` isn't a `keras.Model`, or `executor` isn't a string.
      ValueError: If Keras uses another backend, or an argument isn't one of the names above.
    """
    check_executor(executor)
    check_choice("fallback", fallback, FALLBACKS)
    check_fuse(fuse)
    if not isinstance(model, keras.Model):
        remedy = ""
        if isinstance(model, list | tuple):
            remedy = " Accelerate one model after the other."
        elif any(kind.__module__.startswith("tf_keras.") for kind in type(model).__mro__):
            remedy = " It is a model of Keras 2: pass its step to fastsup.function, or build it with Keras 3."
        raise TypeError(f"model must be a keras.Model, got {model!r} of type {type(model).__name__}.{remedy}")
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"model must use the backend 'tensorflow'; Keras's backend is {keras.backend.backend()!r}. Set "
            "KERAS_BACKEND=tensorflow before Keras is imported."
        )
    accelerate_model(model, executor, fallback, fuse)
    return model


def accelerate_model(
    model: Any, executor: str = "auto", fallback: str = "warn", fuse: str = "auto", earns: bool = False
) -> None:
    """Accelerates a model, given checked arguments.

    Args:
      model, executor, fallback, fuse: as for `accelerate`.
      earns: Whether functions are lifted only when that pays off, as for `lifted_function`.
    """
    if fallback != "raise":
        # The first steps after an installation don't wait for this.
        tf_abi.begin_self_test()
    acceleration = Acceleration(model, executor, fallback, fuse, earns)
    object.__setattr__(model, _ATTRIBUTE, acceleration)
    acceleration.install()


def acceleration_of(model: Any) -> Acceleration | None:
    """Returns the acceleration of a model, or None if it isn't accelerated.

    Args:
      model: the model.
    """
    acceleration: Acceleration | None = getattr(model, _ATTRIBUTE, None)
    return acceleration
