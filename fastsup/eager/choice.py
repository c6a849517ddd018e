"""Which executor runs a lifted graph."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any

from fastsup.eager.eager_session import EagerCallable
from fastsup.eager.effects_first import put_effects_first
from fastsup.eager.lift import LiftedGraph
from fastsup.runtime.executor import REMEDY, may_run_inline, suits_single_thread
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
    if executor == "single_threaded":
        check_threads(lifted.graph.get_operations(), lifted.session_config(single_threaded=True), REMEDY)
    if runs_in_one_thread(lifted, executor, lifted.fetches):
        executor = "single_threaded"
    elif executor == "auto" and lifted.is_compiled_by_xla:
        executor = "thread_pool"
    lifted.finalize()
    if executor != "auto":
        return lifted.compile(executor), None
    started = perf_counter()
    pool: Any = lifted.compile("thread_pool")
    compile_secs = perf_counter() - started
    inside = [_Typed(kind) for kind in types_in_functions(lifted.graph)]
    if not may_run_inline(lifted.graph.get_operations()) or not may_run_inline(inside):
        return pool, None
    make_inline: Callable[[], Any] = functools.partial(lifted.compile, "inline")
    return None, Trial(pool, make_inline, False, chosen, compile_secs)


def runs_in_one_thread(lifted: LiftedGraph, executor: str, fetches: Iterable[Any]) -> bool:
    """Whether the single-threaded executor runs a lifted graph. Puts the graph in order for it.

    Args:
      lifted: the graph.
      executor: the mode that was asked for.
      fetches: the tensors and operations that a step computes.
    """
    if executor != "auto":
        is_wanted = executor == "single_threaded"
    elif lifted.is_compiled_by_xla or not FUNCTIONAL_CONTROL_FLOW.isdisjoint(types_in_functions(lifted.graph)):
        is_wanted = False
    else:
        config = lifted.session_config(single_threaded=False)
        is_wanted = suits_single_thread(lifted.graph, config, may_end=False)
    return is_wanted and (put_effects_first(fetches) or executor != "auto")


class _Typed:
    """An operation of a function, of which the type alone is known."""

    def __init__(self, kind: str) -> None:
        self.type = kind
