"""The training parts of `tf.contrib`, which ended with TensorFlow 1: `learn` and `training`."""

from typing import Any

import fastsup.runtime as _runtime  # noqa: F401  # Says which extra brings TensorFlow.
from fastsup.contrib import learn, training
from fastsup.experiment.absent_contrib_names import absent_contrib_error

__all__ = ["learn", "training"]


def __getattr__(name: str) -> Any:
    raise absent_contrib_error(__name__, name)


def __dir__() -> list[str]:
    return sorted(__all__)
