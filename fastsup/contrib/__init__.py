"""The training parts of `tf.contrib`, which ended with TensorFlow 1: `learn` and `training`."""

from typing import Any

import fastsup.runtime as _runtime  # noqa: F401  # Says which extra brings TensorFlow.
from fastsup.common.absent_names import absent_name_error, alternative_to
from fastsup.contrib import learn, training

__all__ = ["learn", "training"]

_IN_SLIM = "framework|layers|losses|metrics|slim"
_ALTERNATIVES = ((_IN_SLIM, "use the package tf_slim (pip install tf_slim), after fastsup.install()."),)


def __getattr__(name: str) -> Any:
    raise absent_name_error(__name__, name, alternative_to(name, _ALTERNATIVES))


def __dir__() -> list[str]:
    return sorted(__all__)
