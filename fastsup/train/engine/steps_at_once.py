"""Steps of a session's loop in one compiled call, where no hook is due between them."""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from typing import Any

import numpy as np
from tensorflow.python.framework import ops
from tensorflow.python.framework import tensor as tensor_lib

from fastsup.core.loop import SECONDS_AT_ONCE
from fastsup.steps.fused import FusedCalls
from fastsup.steps.fused_function import leaves_of

__all__ = ["StepsAtOnce"]


class StepsAtOnce:
    """Makes several steps of a session's loop in one call.

    Args:
      calls: makes the calls.
      graph: the session's graph.
      leaves: the results of a call, as tensors of the graph. What hooks watch is added, as long as `calls` has made no
        function, if `may_grow`.
      may_grow: whether the function can return whatever is in `leaves` when it is made.
      build: makes of the values of the leaves, of which there may be more, what a session returns for a step.
    """

    def __init__(
        self,
        calls: FusedCalls,
        graph: ops.Graph,
        leaves: list[Any],
        may_grow: bool,
        build: Callable[[list[Any]], Any],
    ) -> None:
        self._calls = calls
        self._graph = graph
        self._leaves = leaves
        self._may_grow = may_grow
        self._build = build
        # The fetches that hooks watch, and where each of them is among the results.
        self._watched: list[Any] = []
        self._places: list[int] = []
        self._why_not = ""
        if not all(isinstance(leaf, tensor_lib.Tensor) for leaf in leaves):
            self._why_not = "it returns something other than tensors"

    @property
    def why_not_fused(self) -> str:
        """Why several steps can't be made at once; an empty string if they can."""
        return self._why_not or self._calls.why_not_fused

    @property
    def fallback_reason(self) -> str:
        """Why steps aren't made at once now; an empty string if they are."""
        return self._why_not or self._calls.fallback_reason

    @property
    def fused(self) -> bool:
        """True if steps are made at once now, where no hook is due between them."""
        return not self._why_not and self._calls.fused

    def is_next(self) -> bool:
        """Whether the next steps should be made at once."""
        return not self._why_not and self._calls.is_next()

    def most_alone(self, limit: int) -> int:
        """How many steps to make one after the other before `is_next` is asked again, at most `limit`."""
        return self._calls.most_alone(limit, SECONDS_AT_ONCE)

    def record_alone(self, steps: int, seconds: float) -> None:
        """Takes the duration of steps that were made one after the other. As of `FusedCalls`."""
        self._calls.record_alone(steps, seconds)

    def run_steps(self, limit: int, seconds: float, watched: list[Any]) -> tuple[int, Any, list[Any]] | None:
        """Makes several steps in one call.

        Args:
          limit: the most steps to make.
          seconds: how long they may take.
          watched: the fetches that hooks watch.

        Returns:
          The number of steps; what a session returns for the last one; and for each of `watched` its values, an array
          with one for each step. None if no step was made.
        """
        if len(watched) != len(self._watched) or not all(map(is_, watched, self._watched)):
            self._places, self._watched = self._places_of(watched), watched
        if self._why_not:
            return None
        made = self._calls.make_steps(limit, seconds, bool(watched))
        if made is None:
            return None
        steps, last, results = made
        values = [value.numpy() if hasattr(value, "numpy") else value for value in leaves_of(last)]
        arrays = [np.asarray(value)[np.newaxis] for value in values] if results is None else leaves_of(results)
        return steps, self._build(values), [arrays[place] for place in self._places]

    def _places_of(self, watched: list[Any]) -> list[int]:
        places = []
        for fetch in watched:
            tensor = self._graph.as_graph_element(fetch)
            # A name of a result stands for an operation that passes it on.
            sources = [tensor, *(tensor.op.inputs if tensor.op.type == "Identity" else ())]
            found = [place for place, leaf in enumerate(self._leaves) if any(leaf is source for source in sources)]
            if not found and self._may_grow and self._calls.fusion.function is None:
                self._leaves.append(tensor)
                found = [len(self._leaves) - 1]
            if not found:
                self._why_not = f"a hook watches {tensor.name}, which isn't a result of the step"
                return []
            places.append(found[0])
        blocks = self._calls.blocks
        if places and blocks is not None and blocks.may_differ:
            varying = [leaf for leaf in self._leaves if not leaf.shape.is_fully_defined()]
            if varying:
                self._why_not = f"a hook watches the results, and {varying[0].name} has the size of the batch"
        return places
