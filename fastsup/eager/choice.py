"""Which executor runs a lifted graph."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any

from fastsup.eager.eager_session import EagerCallable
from fastsup.eager.effects_first import put_effects_first
from fastsup.eager.lift import LiftedGraph
from fastsup.runtime.executor import INLINE, POOL, REMEDY, SINGLE, decide, suits_single_thread
from fastsup.runtime.graph.nested_conditionals import check_threads
from fastsup.runtime.graph.operations import FUNCTIONAL_CONTROL_FLOW, types_in_functions
from fastsup.runtime.trial import Trial

__all__ = ["choose", "runs_in_one_thread"]


def choose(lifted: LiftedGraph, executor: str, chosen: Callable[[Any], None]) -> tuple[EagerCallable | None, Any]:
    """Chooses the executor of a lifted graph.

    Args:
      lifted: the graph.
      executor: the mode that was asked for.
      chosen: function that is called with the trial when it has chosen.

    Returns:
      The callable that runs the graph, or None if a trial decides; and that trial, or None.

    Raises:
      tf.errors.UnimplementedError: the single-threaded executor was asked for, and can't run the graph.
      tf.errors.OpError: the runtime refuses the graph.
    """
    if executor == SINGLE:
        check_threads(lifted.graph.get_operations(), lifted.session_config(single_threaded=True), REMEDY)
    if runs_in_one_thread(lifted, executor, lifted.fetches):
        executor = SINGLE
    lifted.finalize()
    executor = decide(
        executor,
        lifted.graph.get_operations(),
        types_inside=types_in_functions(lifted.graph),
        is_compiled_by_xla=lifted.is_compiled_by_xla,
    )
    if executor != "auto":
        return lifted.compile(executor), None
    started = perf_counter()
    pool: Any = lifted.compile(POOL)
    compile_secs = perf_counter() - started
    make_inline: Callable[[], Any] = functools.partial(lifted.compile, INLINE)
    return None, Trial(pool, make_inline, False, chosen, compile_secs)


def runs_in_one_thread(lifted: LiftedGraph, executor: str, fetches: Iterable[Any]) -> bool:
    """Whether the single-threaded executor runs a lifted graph. Puts the graph in order for it.

    Args:
      lifted: the graph.
      executor: the mode that was asked for.
      fetches: the tensors and operations that a step computes.
    """
    if executor != "auto":
        is_wanted = executor == SINGLE
    elif lifted.is_compiled_by_xla or not FUNCTIONAL_CONTROL_FLOW.isdisjoint(types_in_functions(lifted.graph)):
        is_wanted = False
    else:
        config = lifted.session_config(single_threaded=False)
        is_wanted = suits_single_thread(lifted.graph, config, may_end=False)
    return is_wanted and (put_effects_first(fetches) or executor != "auto")
