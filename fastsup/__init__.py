"""TensorFlow's training-session layer at the speed of the TensorFlow runtime.

`fastsup.train` has the session-layer names of `tf.compat.v1.train`, `fastsup.Session` is a `tf.compat.v1.Session`,
`fastsup.core` is the compiled step loop by itself, and `fastsup.HookProfiler` says what each hook costs. TensorFlow is
imported when a name that needs it is first used, not by `import fastsup`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["HookProfiler", "Session", "core", "profile", "train"]

if TYPE_CHECKING:
    from fastsup import core as core
    from fastsup import profile as profile
    from fastsup import train as train
    from fastsup.profile.profiler import HookProfiler as HookProfiler
    from fastsup.runtime.session import Session as Session


def __getattr__(name: str) -> Any:
    if name in ("core", "profile", "train"):
        return importlib.import_module(f"fastsup.{name}")
    if name == "HookProfiler":
        from fastsup.profile.profiler import HookProfiler

        return HookProfiler
    if name == "Session":
        from fastsup.runtime.session import Session

        return Session
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
