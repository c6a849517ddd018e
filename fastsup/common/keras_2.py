"""What a program is told that needs Keras 2, the package tf_keras."""

from __future__ import annotations

import re

from fastsup.common.installed import tensorflow_version

__all__ = ["SWITCH", "Keras2Hint", "install_command"]

SWITCH = "set the environment variable TF_USE_LEGACY_KERAS=1 before tensorflow is imported"
_NOT_IN_KERAS_3 = re.compile(r"`\w+` is not available with Keras 3\.$")


def install_command() -> str:
    """The command that installs Keras 2.

    Without dependencies: tf_keras requires the distribution tensorflow, which pip would install over tensorflow-cpu.
    """
    release = ".".join(str(tensorflow_version()).split(".")[:2])
    return f"pip install --no-deps 'tf_keras=={release}.*'"


class Keras2Hint:
    """A context that adds the remedy to TensorFlow's error about a function that only Keras 2 has."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, AttributeError) and _NOT_IN_KERAS_3.search(str(error)):
            hint = (
                f"tf.compat.v1.layers and tf.compat.v1.nn.rnn_cell need Keras 2: {install_command()}, and {SWITCH}. "
                "Under Keras 3 use tf.keras.layers."
            )
            error.args = (f"{error} {hint}",)
