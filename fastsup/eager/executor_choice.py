"""Chooses the executor of a lifted graph, and an order in which a failed step leaves the same state everywhere.

This is separate from lifting, which creates a graph that any executor may run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any

from tensorflow.python.framework import ops

from fastsup.eager.eager_session import EagerCallable
from fastsup.eager.lift import LiftedGraph
from fastsup.runtime.executor import INLINE, POOL, REMEDY, SINGLE, decide, suits_single_thread
from fastsup.runtime.graph.effects import READS_INPUT, CanFail, has_effect, unordered
from fastsup.runtime.graph.operations import FUNCTIONAL_CONTROL_FLOW, types_in_functions, upstream_operations
from fastsup.runtime.graph.placement import check_threads
from fastsup.runtime.trial import Trial

__all__ = ["choose"]


def choose(lifted: LiftedGraph, executor: str, chosen: Callable[[Any], None]) -> tuple[EagerCallable | None, Any]:
    """Chooses the executor of a lifted graph.

    Args:
      lifted: the graph.
      executor: the requested mode.
      chosen: function that is called with the trial when it has decided.

    Returns:
      The callable that runs the graph, or None if a trial decides; and that trial, or None.

    Raises:
      tf.errors.UnimplementedError: If the single-threaded executor was requested but can't run the graph.
      tf.errors.OpError: If the runtime refuses the graph.
    """
    if executor == SINGLE:
        if lifted.placement is not None:
            lifted.placement.check_one_device(REMEDY)
        check_threads(lifted.graph.get_operations(), lifted.session_config(single_threaded=True), REMEDY)
    if _runs_in_one_thread(lifted, executor):
        executor = SINGLE
    lifted.finalize()
    executor = decide(
        executor,
        lifted.graph.get_operations(),
        types_inside=types_in_functions(lifted.graph),
        has_one_executor=lambda: not lifted.is_on_several_devices,
    )
    if executor != "auto":
        return lifted.compile(executor), None
    started = perf_counter()
    pool: Any = lifted.compile(POOL)
    compile_secs = perf_counter() - started
    make_inline: Callable[[], Any] = functools.partial(lifted.compile, INLINE)
    return None, Trial(pool, make_inline, False, chosen, compile_secs)


def _runs_in_one_thread(lifted: LiftedGraph, executor: str) -> bool:
    """Returns True if the single-threaded executor runs a lifted graph. Orders the graph for it if necessary."""
    only_device = "" if lifted.placement is None else lifted.placement.only_device
    if executor != "auto":
        is_wanted = executor == SINGLE
    elif lifted.is_on_several_devices or _has_calls_of_much(lifted):
        is_wanted = False
    else:
        config = lifted.session_config(single_threaded=False)
        is_wanted = suits_single_thread(lifted.graph, config, may_end=False, only_device=only_device)
    # If the graph is one XLA call and the call fails, no effect is missing and nothing else was done.
    return is_wanted and (lifted.is_one_xla_call or _put_effects_first(lifted.fetches) or executor != "auto")


def _has_calls_of_much(lifted: LiftedGraph) -> bool:
    """Returns True if a graph has calls with too much work for the single-threaded executor. One XLA call is fine."""
    if lifted.is_compiled_by_xla:
        return not lifted.is_one_xla_call
    return not FUNCTIONAL_CONTROL_FLOW.isdisjoint(types_in_functions(lifted.graph))


def _put_effects_first(fetches: Iterable[Any]) -> bool:
    """Orders operations with an effect before operations that can fail, unless they depend on them.

    An operation is made to wait for an effect only if it already depends on everything that can prevent the effect.
    Therefore no executor's result changes.

    Args:
      fetches: the tensors and operations that a step computes. If their graph is already ordered, nothing is added.

    Returns:
      True if a step that fails because of its values leaves the same state in all executors.
    """
    operations = sorted(upstream_operations(fetches), key=lambda op: op._id)
    if not any(map(has_effect, operations)):
        return True
    wanted: dict[ops.Operation, list[ops.Operation]] = {}
    for effect, failing, is_harmless in unordered(operations, CanFail(by_shapes=True), has_effect):
        if is_harmless:
            wanted.setdefault(failing, []).append(effect)
    for failing, effects in wanted.items():
        failing._add_control_inputs(effects)
    # If a step reads two datasets and one of them ends, TensorFlow itself may or may not read the other one.
    return all(
        effect.type in READS_INPUT and failing.type in READS_INPUT
        for effect, failing, _ in unordered(operations, CanFail(by_shapes=False), has_effect)
    )
