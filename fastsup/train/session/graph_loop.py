"""Many steps of a session in one run: a loop that XLA compiles, over a copy of the operations of one step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import importer, ops

from fastsup.runtime.graph.effects import CONTROL_FLOW
from fastsup.runtime.graph.operations import upstream_operations
from fastsup.steps.fused_function import FusedLoop, NotFusable

__all__ = ["GraphLoop"]


class GraphLoop:
    """Makes several steps of a session in one run.

    Args:
      graph: the session's graph, finalized. It gets more operations.
      tensors: what a step fetches.
      targets: the operations that it runs.
      session: returns the session to run in.

    Raises:
      NotFusable: the step has operations that can't be in such a loop.
    """

    def __init__(
        self, graph: ops.Graph, tensors: Sequence[Any], targets: Sequence[Any], session: Callable[[], Any]
    ) -> None:
        self._graph = graph
        self._tensors, self._targets = list(tensors), list(targets)
        self._session = session
        self._operations = upstream_operations([*self._tensors, *self._targets])
        self._handles = [operation for operation in self._operations if operation.type == "VarHandleOp"]
        self._check()
        self._loop = FusedLoop(self._make_one, self._tensors)
        self._steps: Any = None
        # By whether they return the results of all steps.
        self._fetches: dict[bool, Any] = {}

    @property
    def most_results(self) -> int:
        """The most steps of a call that returns the results of all."""
        return self._loop.most_results

    def __call__(
        self, first: int, steps: int, stacked: Sequence[Any], args: Any, kwargs: Any, with_results: bool
    ) -> tuple[Any, Any]:
        """Makes steps. As of `fastsup.steps.fused_function.FusedFunction`, but without batches and arguments."""
        if with_results not in self._fetches:
            self._fetches[with_results] = self._build(with_results)
        last, results, _ = self._session().run(self._fetches[with_results], {self._steps: steps})
        return last, [result[:steps] for result in results]

    def _check(self) -> None:
        for operation in self._operations:
            if operation.type in CONTROL_FLOW:
                raise NotFusable(f"{operation.name} is low-level control flow ({operation.type})")
            if any(tensor.dtype._is_ref_dtype for tensor in operation.outputs):
                raise NotFusable(f"{operation.name} is a variable that isn't a resource variable")
            if operation.type.startswith("Placeholder") and operation.type != "PlaceholderWithDefault":
                raise NotFusable(f"{operation.name} has to be fed")

    def _build(self, with_results: bool) -> Any:
        graph = self._graph
        was_finalized = graph.finalized
        graph._unsafe_unfinalize()
        try:
            with graph.as_default(), ops.name_scope("fastsup_steps/"), tf.control_dependencies(None):
                if self._steps is None:
                    self._steps = tf.compat.v1.placeholder(tf.int32, [], "number")

                def loop(steps: Any) -> Any:
                    last, results = self._loop.trace(with_results, 0, steps)
                    return last, results or [], steps + 0  # The last one has a step without results run, too.

                return tf.function(loop, autograph=False, jit_compile=True)(self._steps)
        finally:
            if was_finalized:
                graph.finalize()

    def _make_one(self, batch: list[Any]) -> list[Any]:
        """Copies the operations of a step into the body of the loop, whose handles of variables are the graph's own."""
        names = {operation.name for operation in self._operations}
        definition = self._graph.as_graph_def()
        nodes = [node for node in definition.node if node.name in names]
        handles = {operation.name for operation in self._handles}
        del definition.node[:]
        definition.node.extend(node for node in nodes if node.name not in handles)
        for node in definition.node:
            kept = [source for source in node.input if source.lstrip("^") not in handles or source[0] != "^"]
            del node.input[:]
            node.input.extend(kept)
            node.attr.pop("_class", None)  # Colocation, perhaps with a variable.
        body = ops.get_default_graph()
        wanted = [*(tensor.name for tensor in self._tensors), *(operation.name for operation in self._targets)]
        found = importer.import_graph_def(
            definition,
            input_map={operation.outputs[0].name: body.capture(operation.outputs[0]) for operation in self._handles},
            return_elements=wanted,
            name="step",
        )
        results, done = found[: len(self._tensors)], found[len(self._tensors) :]
        with ops.control_dependencies(done):
            return [tf.identity(result) for result in results]
