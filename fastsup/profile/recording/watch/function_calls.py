"""Records a program's `tf.function`: each call is a step, unless it is inside another recording."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from fastsup.profile.recording.phases import BY_TENSORFLOW_FUNCTION, FUNCTION_ROLE
from fastsup.profile.recording.statistics import RUNTIME
from fastsup.profile.recording.watch.probes import recorded_calls
from fastsup.profile.recording.watch.replacements import Replacement

__all__ = ["replacements"]


def replacements(polymorphic_function: ModuleType) -> Iterator[Replacement]:
    """The replacement of a TensorFlow method while a profiler is on."""
    replaced = functools.partial(
        recorded_calls,
        role=FUNCTION_ROLE,
        phase=RUNTIME,
        kind_of=_kind_of,
        session_info_of=_runner_of,
        # In another function it is traced.
        is_a_step=polymorphic_function.context.executing_eagerly,
    )
    yield polymorphic_function.Function, "__call__", replaced


def _kind_of(function: Any) -> str:
    return f"tf.function {function._name}"


def _runner_of(function: weakref.ref[Any]) -> dict[str, Any]:
    return {"asked": BY_TENSORFLOW_FUNCTION, "plans": [], "operations": 0}
