"""Optimizers and models of Keras 3 that programs give to the canned models, which are Keras 2."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from typing import Any

from tensorflow.python.eager import context
from tensorflow.python.platform import tf_logging as logging

from fastsup.common.absent_names import SWITCH
from fastsup.estimator.canned.keras_2 import tensorflow_with_keras_2

__all__ = ["accepting_keras_3", "refusing_keras_3"]

_SET_VARIABLE = f"{SWITCH}: tf.keras is then Keras 2"
_CONVERTED = frozenset({"Adadelta", "Adagrad", "Adam", "Adamax", "Ftrl", "Nadam", "RMSprop", "SGD"})
# Arguments that Keras 2 takes as well, but not as None. And those that it doesn't take, with the values for "off".
_CLIPPING = ("clipnorm", "clipvalue", "global_clipnorm")
_OFF: dict[str, Any] = {
    "weight_decay": (None, 0.0),
    "use_ema": (False,),
    "loss_scale_factor": (None,),
    "gradient_accumulation_steps": (None,),
}
_WITHOUT_MEANING = ("ema_momentum", "ema_overwrite_frequency", "jit_compile")


def _is_of_keras_3(value: Any, name: str) -> bool:
    """Whether a value is an object of a class of Keras 3, without an import of Keras."""
    keras = sys.modules.get("keras")
    kind: Any = keras
    for part in name.split("."):
        kind = getattr(kind, part, None)
    return isinstance(kind, type) and isinstance(value, kind)


def _converted(optimizer: Any) -> Any:
    """The optimizer of Keras 2 that does what an optimizer of Keras 3 does."""
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
    # The name is part of the variables' names. Keras 3 numbers names that the program doesn't give, per process.
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
    """Lets `get_optimizer_instance_v2` of the archive take optimizers of Keras 3.

    Args:
      get_optimizer: the function. Its first argument is an optimizer, a function that makes one, or a name.

    Returns:
      The function with that addition. It raises ValueError for an optimizer of Keras 3 that Keras 2 lacks.
    """

    @functools.wraps(get_optimizer)
    def get_optimizer_of_keras_2(opt: Any, learning_rate: Any = None) -> Any:
        made = opt() if callable(opt) and not isinstance(opt, str) else opt
        if _is_of_keras_3(made, "optimizers.Optimizer"):
            made = _converted(made)
        return get_optimizer(made, learning_rate)

    return get_optimizer_of_keras_2


def refusing_keras_3(model_to_estimator: Callable[..., Any]) -> Callable[..., Any]:
    """Lets `model_to_estimator` of the archive say which models it takes.

    Args:
      model_to_estimator: the function. Its first argument is a model of Keras 2.

    Returns:
      The function with that addition. It raises TypeError for a model of Keras 3.
    """

    @functools.wraps(model_to_estimator)
    def model_of_keras_2_to_estimator(keras_model: Any = None, *args: Any, **kwargs: Any) -> Any:
        if _is_of_keras_3(keras_model, "Model"):
            raise TypeError(
                f"keras_model is a model of Keras 3, {keras_model!r}, which can't be made an Estimator. Make it of the "
                f"classes of tf_keras; or {_SET_VARIABLE}. Or call the model in a model_fn "
                f"(`python -m fastsup docs estimator`)."
            )
        return model_to_estimator(keras_model, *args, **kwargs)

    return model_of_keras_2_to_estimator
