"""How many traces are lifted at a time: a number of one function, and a part of the memory of the process."""

from __future__ import annotations

import os
import weakref
from typing import Any

from fastsup.runtime.graph.operations import function_defs

__all__ = ["LiftLimit"]

_MOST_GRAPHS = 512
# What a lifted graph takes, besides TensorFlow's trace of it, which takes about twice as much: measured.
_BYTES_OF_A_GRAPH, _BYTES_OF_AN_OPERATION = 50_000, 10_000
_SHARE_OF_MEMORY = 0.25

# The lifted steps of the process, and the bytes that each takes, as estimated.
_bytes_of_steps: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


class LiftLimit:
    """Decides whether one more trace of a function may be lifted.

    Args:
      most_graphs: the most lifted graphs of a function.
      most_bytes: the most memory of all lifted graphs of the process, as estimated. None for a quarter of the
        machine's.
    """

    def __init__(self, most_graphs: int = _MOST_GRAPHS, most_bytes: int | None = None) -> None:
        self._most_graphs = most_graphs
        self._most_bytes = int(_SHARE_OF_MEMORY * _machine_bytes()) if most_bytes is None else most_bytes

    def why_full(self, concrete: Any, lifted: int) -> str:
        """Tells why a trace isn't to be lifted.

        Args:
          concrete: the ConcreteFunction.
          lifted: the number of its function's traces that are lifted.

        Returns:
          The reason; an empty string if there is room for it.
        """
        if lifted >= self._most_graphs:
            return f"{lifted} of its traces are lifted already, which is the limit"
        taken = sum(list(_bytes_of_steps.values()))
        if taken + _graph_bytes(concrete) > self._most_bytes:
            return (
                f"its graph would take about {_graph_bytes(concrete) / 1e6:,.1f} MB, and those of the process take "
                f"{taken / 1e6:,.0f} of {self._most_bytes / 1e6:,.0f} already"
            )
        return ""

    def add(self, step: Any) -> None:
        """Counts a lifted step, as long as it lives.

        Args:
          step: the LiftedStep.
        """
        _bytes_of_steps[step] = _graph_bytes(step.graph.concrete)


def _machine_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _graph_bytes(concrete: Any) -> int:
    """About the memory that the lifted graph of a trace takes."""
    inside = sum(len(definition.node_def) for definition in function_defs(concrete.graph))
    return _BYTES_OF_A_GRAPH + _BYTES_OF_AN_OPERATION * (len(concrete.graph.get_operations()) + inside)
