"""Puts the operations of a lifted graph in the order in which a step that fails leaves the same behind everywhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tensorflow.python.framework import ops

from fastsup.runtime.graph.can_fail import CanFail
from fastsup.runtime.graph.effects import has_effect
from fastsup.runtime.graph.operations import operations_behind
from fastsup.runtime.graph.step_failure import READS_INPUT, unordered

__all__ = ["put_effects_first"]


def put_effects_first(fetches: Iterable[Any]) -> bool:
    """Lets operations with an effect run before operations that can fail, where they don't depend on them.

    An operation gets to wait for an effect only if it depends already on all that can keep the effect from being done.
    No executor then does another thing than before.

    Args:
      fetches: the tensors and operations that a step computes. Nothing is added to their graph if it has been put in
        order before.

    Returns:
      Whether a step that fails by the values that it gets now leaves the same state behind in all executors.
    """
    operations = sorted(operations_behind(fetches), key=lambda op: op._id)
    wanted: dict[ops.Operation, list[ops.Operation]] = {}
    for effect, failing, is_harmless in unordered(operations, CanFail(by_shapes=True), has_effect):
        if is_harmless:
            wanted.setdefault(failing, []).append(effect)
    for failing, effects in wanted.items():
        failing._add_control_inputs(effects)
    # Of two datasets, TensorFlow itself reads the one or not when the other ends.
    return all(
        effect.type in READS_INPUT and failing.type in READS_INPUT
        for effect, failing, _ in unordered(operations, CanFail(by_shapes=False), has_effect)
    )
