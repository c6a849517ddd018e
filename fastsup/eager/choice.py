"""Which executor runs a lifted graph."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fastsup.eager.eager_session import EagerCallable
from fastsup.eager.lift import LiftedGraph
from fastsup.runtime.executor import REMEDY, SINGLE_THREADED, config_for, may_run_inline
from fastsup.runtime.graph.nested_conditionals import check_threads
from fastsup.runtime.graph.operations import FUNCTIONAL_CONTROL_FLOW, function_defs
from fastsup.runtime.trial import Trial

__all__ = ["choose"]


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
    lifted.graph.finalize()
    operations = lifted.graph.get_operations()
    if executor == "single_threaded":
        check_threads(operations, lifted.session_config(single_threaded=True), REMEDY)
        return lifted.compile(executor), None
    if executor != "auto":
        return lifted.compile(executor), None
    if lifted.is_compiled_by_xla:
        return lifted.compile("thread_pool"), None
    inside = {node.op for definition in function_defs(lifted.graph) for node in definition.node_def}
    config = config_for("auto", lifted.graph, "", lifted.session_config(single_threaded=False))
    if inside.isdisjoint(FUNCTIONAL_CONTROL_FLOW) and config.experimental.executor_type == SINGLE_THREADED:
        return lifted.compile("single_threaded"), None
    pool: Any = lifted.compile("thread_pool")
    if not may_run_inline(operations) or not may_run_inline([_Typed(kind) for kind in inside]):
        return pool, None
    make_inline: Callable[[], Any] = functools.partial(lifted.compile, "inline")
    return None, Trial(pool, make_inline, False, chosen)


class _Typed:
    """An operation of a function, of which the type alone is known."""

    def __init__(self, kind: str) -> None:
        self.type = kind
