"""Several steps of a session's loop in one run: a loop that XLA compiles, over a copy of the operations of one step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.client import session as tf_session
from tensorflow.python.framework import importer, ops
from tensorflow.python.framework import tensor as tensor_lib

from fastsup.core.loop import SECONDS_AT_ONCE
from fastsup.runtime.executor import is_jit_on
from fastsup.runtime.graph.effects import CONTROL_FLOW
from fastsup.runtime.graph.operations import upstream_operations
from fastsup.runtime.session import Session
from fastsup.steps.fused import FusedCalls, Fusion
from fastsup.steps.fused_function import FusedLoop, NotFusable, leaves_of

__all__ = ["GraphLoop", "GraphSteps", "StepsAtOnce"]


class GraphLoop:
    """Makes several steps of a session in one run."""

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


# Combinations of fetches whose loops a graph gets.
_MOST_LOOPS = 8


class GraphSteps:
    """What is known of the loops of a monitored session.

    Args:
      session: returns the session below all hooks; None if it is closed.

    Attributes:
      last: of the loop that was begun last, the `StepsAtOnce`, or why it makes one step after the other.
    """

    def __init__(self, session: Callable[[], Any]) -> None:
        self._session = session
        self._known: dict[Any, StepsAtOnce] = {}
        self.last: StepsAtOnce | str = ""

    def of(self, fetches: Any) -> StepsAtOnce | None:
        """Who can make several steps of a loop in one run; None if it has to make one after the other."""
        session = self._session()
        reason = _why_not(session)
        if not reason:
            handler = tf_session._FetchHandler(session.graph, fetches, {})
            key = (session.graph, *map(id, handler.fetches()), None, *map(id, handler.targets()))
            if key in self._known or len(self._known) < _MOST_LOOPS:
                self.last = self._known[key] = self._known.get(key) or self._new(session.graph, handler)
                return self.last
            reason = f"the session has had loops of {_MOST_LOOPS} other combinations of fetches"
        self.last = reason
        return None

    def _new(self, graph: ops.Graph, handler: Any) -> StepsAtOnce:
        leaves, targets = list(handler.fetches()), list(handler.targets())
        count = len(leaves)

        def make() -> GraphLoop:
            return GraphLoop(graph, leaves, targets, self._session)

        def build(values: list[Any]) -> Any:
            return handler.build_results(self._session(), values[:count])

        names = ", ".join(element.name for element in (leaves + targets)[:3])
        calls = FusedCalls(f"The step that fetches {names}", make, Fusion(), is_forced=False)
        return StepsAtOnce(calls, graph, leaves, True, build)


def _why_not(session: Any) -> str:
    """Why steps of a session can't be made at once, as far as that is known without looking at the step."""
    if not isinstance(session, Session) or session.sess_str:
        return "the session isn't a fastsup.Session of this process"
    if not is_jit_on(session._config):
        return "XLA doesn't compile the step: the session's global_jit_level isn't on, or not for the CPU"
    devices = [device for device in session.list_devices() if "XLA" not in device.device_type]
    return "" if len(devices) == 1 else "TensorFlow has several devices"
