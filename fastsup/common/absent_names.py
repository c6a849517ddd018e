"""Names that a module lacks: their errors, tables of alternatives, and hints about TensorFlow 1 and Keras 2."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from typing import Any

from fastsup.common.versions import tensorflow_version

__all__ = [
    "SWITCH",
    "Keras2Hint",
    "TensorFlow1Hint",
    "absent_module_error",
    "absent_name_error",
    "alternative_to",
    "install_command",
]


def alternative_to(name: str, alternatives: Iterable[tuple[str, str]]) -> str | None:
    """Returns the alternative to a name.

    Args:
      name: the name.
      alternatives: pairs of a name pattern and a sentence. The first matching pattern is used.

    Returns:
      The sentence, or None if no pattern matches.
    """
    return next((sentence for pattern, sentence in alternatives if re.fullmatch(pattern, name)), None)


def absent_name_error(module: str, name: str, alternative: str | None = None) -> AttributeError:
    """Returns the error for a name that a module lacks.

    Args:
      module: name of the module.
      name: the missing name.
      alternative: sentence about what to use instead or what to install, or None.
    """
    if alternative is None:
        # Python adds the name and the module to the error, and its traceback then proposes a similar name in the
        # module.
        return AttributeError(f"module {module!r} has no attribute {name!r}")
    return AttributeError(f"{module} has no {name}: {alternative}", name=name)


def absent_module_error(module: str, alternative: str) -> ModuleNotFoundError:
    """Returns the error for a module that doesn't exist. Takes the arguments of `absent_name_error`."""
    return ModuleNotFoundError(f"No module named {module!r}: {alternative}", name=module)


_TF1 = (
    "{} is a name of TensorFlow 1. `python -m fastsup run --tf1 SCRIPT` runs the program unchanged. Or call "
    "fastsup.install(tf1=True) before it imports tensorflow"
)
_ESTIMATOR = (
    "TensorFlow 2.16 removed tf.estimator. `python -m fastsup run SCRIPT` runs the program unchanged. Or call "
    "fastsup.install() in it, or import fastsup.estimator"
)


class TensorFlow1Hint:
    """A context that adds the remedy to Python's error about a name that only TensorFlow 1 has."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        tensorflow: Any = sys.modules.get("tensorflow")
        if not isinstance(error, AttributeError) or tensorflow is None:
            return
        name = _public_name(error, tensorflow)
        if name == "tf.estimator":
            hint = _ESTIMATOR
        elif name:
            hint = _TF1.format(name)
        else:
            return
        # Clear the name, so that Python doesn't append a similar one.
        error.args, error.name = (f"{error}. {hint}",), None


def _public_name(error: AttributeError, tensorflow: Any) -> str | None:
    """Returns the TensorFlow 1 name that is missing, such as "tf.train.Saver", or None if the error isn't about one."""
    v1, name = tensorflow.compat.v1, str(error.name)
    if error.obj is tensorflow:
        return f"tf.{name}" if name in ("contrib", "estimator") or hasattr(v1, name) else None
    for part, module in list(vars(tensorflow).items()):
        if module is error.obj and hasattr(getattr(v1, part, None), name):
            return f"tf.{part}.{name}"
    return None


SWITCH = "set the environment variable TF_USE_LEGACY_KERAS=1 before tensorflow is imported"
_NO_KERAS = "Keras cannot be imported."
_NOT_IN_KERAS_3 = re.compile(r"`\w+` is not available with Keras 3\.$")


def install_command() -> str:
    """Returns the command that installs Keras 2.

    The command omits dependencies: tf_keras requires the distribution tensorflow, which would overwrite tensorflow-cpu.
    """
    release = ".".join(str(tensorflow_version()).split(".")[:2])
    return f"pip install --no-deps 'tf_keras=={release}.*'"


class Keras2Hint:
    """A context that adds the remedy to TensorFlow's error about a function of Keras 2, or about missing Keras 2."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, AttributeError) and _NOT_IN_KERAS_3.search(str(error)):
            hint = (
                f"tf.compat.v1.layers and tf.compat.v1.nn.rnn_cell need Keras 2: {install_command()}, and {SWITCH}. "
                "Under Keras 3 use tf.keras.layers."
            )
            error.args = (f"{error} {hint}",)
        elif (
            isinstance(error, ImportError) and str(error).startswith(_NO_KERAS) and "TF_USE_LEGACY_KERAS" in os.environ
        ):
            error.msg = f"{error} TF_USE_LEGACY_KERAS is set, which requires Keras 2: {install_command()}."
