"""TensorFlow's training-session layer at the speed of the TensorFlow runtime.

`fastsup.train` contains the session-layer names of `tf.compat.v1.train`. `fastsup.Session` is a `tf.compat.v1.Session`.
`fastsup.estimator` contains the names of `tf.estimator`, and `fastsup.contrib` the training parts of `tf.contrib`.
`fastsup.core` is the compiled step loop, and `fastsup.loop` the loop of training programs, with its hooks.
`fastsup.HookProfiler` measures the cost of each hook. `fastsup.install()` replaces TensorFlow's classes with fastsup's.
`fastsup.function` is a `tf.function` with low call overhead. TensorFlow is imported when a name that needs it is first
used.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "ArrayBatches",
    "HookProfiler",
    "Session",
    "bind",
    "bind_batches",
    "contrib",
    "core",
    "estimator",
    "experiment",
    "function",
    "get_include",
    "install",
    "keras",
    "loop",
    "profile",
    "train",
    "uninstall",
]

if TYPE_CHECKING:
    from fastsup import contrib as contrib
    from fastsup import core as core
    from fastsup import estimator as estimator
    from fastsup import experiment as experiment
    from fastsup import keras as keras
    from fastsup import loop as loop
    from fastsup import profile as profile
    from fastsup import train as train
    from fastsup.compat.install import install as install
    from fastsup.compat.install import uninstall as uninstall
    from fastsup.eager.function import function as function
    from fastsup.loop.batches import bind_batches as bind_batches
    from fastsup.profile.profiler import HookProfiler as HookProfiler
    from fastsup.runtime.session import Session as Session
    from fastsup.steps.array_batches import ArrayBatches as ArrayBatches
    from fastsup.steps.bind import bind as bind


def get_include() -> str:
    """Returns the folder of `fastsup.h`, for the compiler's option `-I`."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "include")


_SUBPACKAGES = ("contrib", "core", "estimator", "experiment", "keras", "loop", "profile", "train")
_MODULES = {
    "ArrayBatches": "fastsup.steps.array_batches",
    "HookProfiler": "fastsup.profile.profiler",
    "Session": "fastsup.runtime.session",
    "bind": "fastsup.steps.bind",
    "bind_batches": "fastsup.loop.batches",
    "function": "fastsup.eager.function",
    "install": "fastsup.compat.install",
    "uninstall": "fastsup.compat.install",
}


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"fastsup.{name}")
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    if name == "_C_API":  # PyCapsule_Import reads this attribute.
        from fastsup.core.capi import c_api

        return c_api(__version__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
