"""Records a program's `tf.function`s. Each call is a step, unless it is inside another recording."""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Iterator
from types import CodeType, FrameType, ModuleType
from typing import Any

from fastsup.core.sessions import SessionOrigin, origin_of_call
from fastsup.profile.recording.phases import BY_TENSORFLOW_FUNCTION, FUNCTION_ROLE
from fastsup.profile.recording.statistics import RUNTIME
from fastsup.profile.recording.watch.probes import recorded_calls
from fastsup.profile.recording.watch.replacements import Replacement

__all__ = ["replacements"]


def replacements(polymorphic_function: ModuleType) -> Iterator[Replacement]:
    """Yields the replacement of a TensorFlow method while a profiler is on."""
    replaced = functools.partial(
        recorded_calls,
        phase=RUNTIME,
        key_of=_code_of,
        origin_of=_origin_of,
        session_info_of=_runner_of,
        # A call within another function is traced, and isn't a step.
        is_a_step=polymorphic_function.context.executing_eagerly,
    )
    yield polymorphic_function.Function, "__call__", replaced


def _code_of(function: Any) -> Any:
    """Returns the Python function's code, by which TensorFlow counts its calls."""
    return function._key_for_call_stats


def _origin_of(function: Any, frame: FrameType) -> SessionOrigin:
    kind, code = f"tf.function {function._name}", _code_of(function)
    if not isinstance(code, CodeType):
        return origin_of_call(kind, FUNCTION_ROLE, frame, "tensorflow")
    line = code.co_filename, code.co_firstlineno
    return SessionOrigin(kind, FUNCTION_ROLE, f"{os.path.basename(line[0])}:{line[1]}", "tensorflow", (line,))


def _runner_of(function: weakref.ref[Any]) -> dict[str, Any]:
    return {"asked": BY_TENSORFLOW_FUNCTION, "plans": [], "operations": 0}
