"""What a program is told that was written for TensorFlow 1 or for `tf.estimator`, and is run without `install()`."""

from __future__ import annotations

import sys

__all__ = ["TensorFlow1Hint"]

_TF1 = (
    "{} is a name of TensorFlow 1. `python -m fastsup run --tf1 SCRIPT` runs the program as it is; or call "
    "fastsup.install(tf1=True) before it imports tensorflow"
)
_ESTIMATOR = (
    "TensorFlow 2.16 has ended tf.estimator. `python -m fastsup run SCRIPT` runs the program as it is; or call "
    "fastsup.install() in it; or import fastsup.estimator"
)


class TensorFlow1Hint:
    """A context that adds the remedy to Python's error about a name that the module `tensorflow` no longer has."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        tensorflow = sys.modules.get("tensorflow")
        if not isinstance(error, AttributeError) or tensorflow is None or error.obj is not tensorflow:
            return
        if error.name == "estimator":
            hint = _ESTIMATOR
        elif error.name == "contrib" or hasattr(tensorflow.compat.v1, str(error.name)):
            hint = _TF1.format(f"tf.{error.name}")
        else:
            return
        # Without the name, Python appends no similar one.
        error.args, error.name = (f"{error}. {hint}",), None
