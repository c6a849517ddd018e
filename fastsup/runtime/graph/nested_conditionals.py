"""How many threads the conditionals of a step hold at a time, in the single-threaded executor.

That executor runs the chosen branch of a conditional in a thread of the inter-op pool. The thread of the conditional
waits for it. A conditional in a branch therefore takes a further thread. A step whose conditionals are nested deeper
than the pool has threads never ends (measured on TensorFlow 2.21).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from tensorflow.python.framework import errors, ops

from fastsup.runtime.graph.operations import CONDITIONALS, FUNCTIONAL_CONTROL_FLOW, PLAIN_CALLS, called_functions

_WITH_BRANCHES = FUNCTIONAL_CONTROL_FLOW | PLAIN_CALLS


def threads_held(operations: Iterable[ops.Operation]) -> dict[ops.Operation, int]:
    """The largest number of threads that each operation with branches, or with a function, holds at a time.

    Args:
      operations: operations of one graph.
    """
    with_branches = [op for op in operations if op.type in _WITH_BRANCHES]
    if not with_branches:
        return {}
    nesting = _Nesting(with_branches[0].graph)
    return {op: nesting.threads([op.node_def], 0) for op in with_branches}


def check_threads(operations: Iterable[ops.Operation], config: Any, remedy: str) -> None:
    """Refuses a step of the single-threaded executor that would wait for a thread without an end.

    Args:
      operations: the operations of the step.
      config: the session's ConfigProto.
      remedy: the sentence that says what to pass in place of the executor.

    Raises:
      tf.errors.UnimplementedError: the conditionals are nested deeper than the inter-op pool has threads.
    """
    threads = config.inter_op_parallelism_threads or _cores()
    for op, held in threads_held(operations).items():
        if held > threads:
            raise errors.UnimplementedError(
                op.node_def,
                op,
                f"The single-threaded executor can't run operation {op.name!r}: its conditionals hold {held} threads "
                f"of the inter-op pool at a time, and the pool has {threads}. {remedy}",
            )


def _cores() -> int:
    """The number of processor cores that this process may use."""
    # Not on macOS.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Nesting:
    """The nesting of conditionals in the functions of a graph.

    Args:
      graph: the graph.
    """

    def __init__(self, graph: ops.Graph) -> None:
        self._graph = graph
        self._known: dict[tuple[str, bool], int] = {}

    def threads(self, nodes: Iterable[Any], held: int) -> int:
        """The number of threads that some nodes hold, with the ones that are held around them.

        Args:
          nodes: NodeDefs.
          held: how many threads the conditionals around the nodes hold.
        """
        return max((self._threads_of(node, held) for node in nodes if node.op in _WITH_BRANCHES), default=held)

    def _threads_of(self, node: Any, held: int) -> int:
        if node.op in PLAIN_CALLS and held:
            # The function isn't inlined there. TensorFlow's ordinary executor runs it, and its conditionals wait
            # without a thread.
            return held + 1
        inside = held + (node.op in CONDITIONALS)
        names = called_functions(self._graph, node)
        return max((self._threads_in(name, inside) for name in names), default=inside)

    def _threads_in(self, name: str, held: int) -> int:
        key = (name, bool(held))
        if key not in self._known:
            self._known[key] = 0  # A function that calls itself adds nothing to its own nesting here.
            function = self._graph._functions[name].cached_definition
            inlined = held or not function.attr["_noinline"].b
            self._known[key] = self.threads(function.node_def, held) - held if inlined else 0
        return held + self._known[key]
