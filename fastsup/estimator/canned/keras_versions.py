"""Gives the archived models Keras 2, and converts the Keras 3 objects that programs pass to them."""

from __future__ import annotations

import functools
import importlib
import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tensorflow.python.eager import context
from tensorflow.python.platform import tf_logging as logging

from fastsup.common.absent_names import SWITCH, install_command
from fastsup.runtime import tensorflow
from fastsup.runtime.session import Session

__all__ = [
    "accepting_keras_3",
    "refusing_keras_3",
    "tensorflow_with_keras_2",
]


class _Interface(ModuleType):
    """A module of TensorFlow's interface in which some names have other values."""

    def __init__(self, module: Any, **others: Any) -> None:
        super().__init__(module.__name__, module.__doc__)
        self.__dict__.update(others, _module=module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_module"], name)


@functools.cache
def tensorflow_with_keras_2() -> ModuleType:
    """Returns `tensorflow` with `tf.keras` and `tf.compat.v1.layers` from tf_keras, whatever Keras the program uses."""
    try:
        v2 = importlib.import_module("tf_keras.api._v2.keras")
        v1 = importlib.import_module("tf_keras.api._v1.keras")
        layers = importlib.import_module("tf_keras.api._v1.keras.__internal__.legacy.layers")
    except (AttributeError, ImportError) as error:
        raise ImportError(
            f"The canned models need the tf_keras that belongs to TensorFlow {tensorflow.__version__}, and the one "
            f"that is installed can't be imported ({error}): {install_command()}.",
            name="tf_keras",
        ) from error
    compat = tensorflow.compat
    return _Interface(
        tensorflow,
        keras=v2,
        compat=_Interface(
            compat,
            v1=_Interface(compat.v1, keras=v1, layers=layers, Session=Session),
            v2=_Interface(compat.v2, keras=v2),
        ),
    )


_SET_VARIABLE = f"{SWITCH}: tf.keras is then Keras 2"
_CONVERTED = frozenset({"Adadelta", "Adagrad", "Adam", "Adamax", "Ftrl", "Nadam", "RMSprop", "SGD"})
# _CLIPPING: arguments that Keras 2 accepts, but not as None. _OFF: arguments that it lacks, and their "off" values.
_CLIPPING = ("clipnorm", "clipvalue", "global_clipnorm")
_OFF: dict[str, Any] = {
    "weight_decay": (None, 0.0),
    "use_ema": (False,),
    "loss_scale_factor": (None,),
    "gradient_accumulation_steps": (None,),
}
_WITHOUT_MEANING = ("ema_momentum", "ema_overwrite_frequency", "jit_compile")


def _is_of_keras_3(value: Any, name: str) -> bool:
    """Returns True if a value is an instance of a Keras 3 class. Doesn't import Keras."""
    keras = sys.modules.get("keras")
    kind: Any = keras
    for part in name.split("."):
        kind = getattr(kind, part, None)
    return isinstance(kind, type) and isinstance(value, kind)


def _converted(optimizer: Any) -> Any:
    """Returns the Keras 2 equivalent of a Keras 3 optimizer."""
    name = type(optimizer).__name__
    if name in _CONVERTED:
        advice = f"Pass the optimizer of Keras 2, tf_keras.optimizers.legacy.{name}, or a function that makes it."
    else:
        names = ", ".join(sorted(_CONVERTED))
        advice = f"Pass one of Keras 2, of those in tf_keras.optimizers.legacy: {names}."
    if name not in _CONVERTED:
        raise ValueError(f"Canned models don't know the optimizer {name} of Keras 3, {optimizer!r}. {advice}")
    try:
        with context.eager_mode():
            config = optimizer.get_config()
    except Exception as error:
        raise ValueError(
            f"The optimizer {name} of Keras 3 was made inside a graph, where its learning rate can't be read: pass the "
            f"optimizer itself, not a function that makes it. {advice}"
        ) from error
    for argument, off in _OFF.items():
        value = config.pop(argument, None)
        if value not in off:
            raise ValueError(f"Canned models don't know {argument}={value!r} of the optimizer {name}. {advice}")
    for argument in _WITHOUT_MEANING:
        config.pop(argument, None)
    for argument in _CLIPPING:
        if config.get(argument) is None:
            config.pop(argument, None)
    optimizers = tensorflow_with_keras_2().keras.optimizers
    rate = config["learning_rate"]
    if isinstance(rate, dict):
        schedule = getattr(optimizers.schedules, rate["class_name"], None)
        if schedule is None:
            raise ValueError(
                f"Canned models don't know the learning rate schedule {rate['class_name']} of Keras 3. {advice}"
            )
        config["learning_rate"] = schedule(**rate["config"])
    # The name is part of the variables' names, and Keras 3 numbers default names across the process.
    if re.fullmatch(rf"({name.lower()}|rm_sprop)(_\d+)?", config["name"]):
        config["name"] = name
    logging.log_first_n(
        logging.WARN,
        "Canned models are Keras 2: tf_keras.optimizers.legacy.%s takes the place of the optimizer %s of Keras 3, with "
        "the same arguments. TensorFlow 2.15 refused its new optimizers (`python -m fastsup docs dropin#estimator`).",
        1,
        name,
        name,
    )
    return getattr(optimizers.legacy, name)(**config)


def accepting_keras_3(get_optimizer: Callable[..., Any]) -> Callable[..., Any]:
    """Makes the archive's `get_optimizer_instance_v2` accept Keras 3 optimizers."""

    @functools.wraps(get_optimizer)
    def get_optimizer_of_keras_2(opt: Any, learning_rate: Any = None) -> Any:
        made = opt() if callable(opt) and not isinstance(opt, str) else opt
        if _is_of_keras_3(made, "optimizers.Optimizer"):
            made = _converted(made)
        return get_optimizer(made, learning_rate)

    return get_optimizer_of_keras_2


def refusing_keras_3(model_to_estimator: Callable[..., Any]) -> Callable[..., Any]:
    """Makes the archive's `model_to_estimator` raise a helpful error for Keras 3 models."""

    @functools.wraps(model_to_estimator)
    def model_of_keras_2_to_estimator(keras_model: Any = None, *args: Any, **kwargs: Any) -> Any:
        if _is_of_keras_3(keras_model, "Model"):
            raise TypeError(
                f"keras_model is a model of Keras 3, {keras_model!r}, which can't be made an Estimator. Make it of the "
                f"classes of tf_keras; or {_SET_VARIABLE}. Or call the model in a model_fn "
                "(`python -m fastsup docs estimator`)."
            )
        return model_to_estimator(keras_model, *args, **kwargs)

    return model_of_keras_2_to_estimator
