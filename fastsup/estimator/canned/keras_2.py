"""The module `tensorflow` as the models of the archive know it: with Keras 2, and with fastsup's Session."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

from fastsup.common.absent_names import install_command
from fastsup.runtime import tensorflow
from fastsup.runtime.session import Session

__all__ = ["tensorflow_with_keras_2"]


class _Interface(ModuleType):
    """A module of TensorFlow's interface, in which some names have other values.

    Args:
      module: the module.
      **others: the other values, by their names.
    """

    def __init__(self, module: Any, **others: Any) -> None:
        super().__init__(module.__name__, module.__doc__)
        self.__dict__.update(others, _module=module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_module"], name)


@functools.cache
def tensorflow_with_keras_2() -> ModuleType:
    """The module. `tf.keras` and `tf.compat.v1.layers` are those of tf_keras, whatever Keras the program uses.

    Raises:
      ImportError: tf_keras isn't for this TensorFlow. The message says which version is.
    """
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
