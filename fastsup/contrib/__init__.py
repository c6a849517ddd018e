"""The training parts of TensorFlow 1's `tf.contrib`: `learn`, `training` and others."""

import importlib
from typing import TYPE_CHECKING, Any

import fastsup.runtime as _runtime  # noqa: F401  # Raises an error with the install command without TensorFlow.
from fastsup.common.absent_names import absent_name_error, alternative_to

if TYPE_CHECKING:
    from fastsup.contrib import learn as learn
    from fastsup.contrib import training as training

__all__ = ["learn", "training"]

_IN_SLIM = "framework|layers|losses|metrics|slim"
_ALTERNATIVES = ((_IN_SLIM, "use the package tf_slim (pip install tf_slim), after fastsup.install()."),)


def __getattr__(name: str) -> Any:
    if name in __all__:
        # Imported here, so that a program that only uses tf.contrib.lookup doesn't wait for the other modules.
        return importlib.import_module(f"{__name__}.{name}")
    raise absent_name_error(__name__, name, alternative_to(name, _ALTERNATIVES))


def __dir__() -> list[str]:
    return sorted(__all__)
