"""TensorFlow's training-session layer at the speed of the TensorFlow runtime.

`fastsup.train` has the session-layer names of `tf.compat.v1.train`, `fastsup.Session` is a `tf.compat.v1.Session`,
`fastsup.estimator` has the names of `tf.estimator`, and `fastsup.core` is the compiled step loop by itself. TensorFlow
is imported when a name that needs it is first used, not by `import fastsup`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Session", "core", "estimator", "experiment", "train"]

if TYPE_CHECKING:
    from fastsup import core as core
    from fastsup import estimator as estimator
    from fastsup import experiment as experiment
    from fastsup import train as train
    from fastsup.runtime.session import Session as Session


def __getattr__(name: str) -> Any:
    if name in ("core", "estimator", "experiment", "train"):
        return importlib.import_module(f"fastsup.{name}")
    if name == "Session":
        from fastsup.runtime.session import Session

        return Session
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
