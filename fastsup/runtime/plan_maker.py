"""Creates and compiles the plan of a combination of fetches and feeds."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import Any

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import session as tf_session
from tensorflow.python.framework import dtypes, ops
from tensorflow.python.training import training_util

from fastsup.runtime.executor import CALLING_THREAD, INLINE, SessionExecutor
from fastsup.runtime.fetches import structure_of
from fastsup.runtime.graph.cost import callable_bytes
from fastsup.runtime.graph.effects import VariableAccess, access_of
from fastsup.runtime.graph.operations import outlive_callables, upstream_operations
from fastsup.runtime.plans import Plan, PlanCache
from fastsup.runtime.session_run import LARGE_RESULTS_BYTES, LargeResults
from fastsup.runtime.trial import Trial, log_choice

__all__ = ["PlanMaker"]


def _may_be_large(tensor: Any) -> bool:
    """Returns True if a tensor's value may be too large to copy cheaply."""
    if tensor.dtype.base_dtype in (dtypes.string, dtypes.resource, dtypes.variant):
        return False
    count = tensor.shape.num_elements()
    return count is None or count * tensor.dtype.size >= LARGE_RESULTS_BYTES


class PlanMaker:
    """Creates the plans of a session. Doesn't refer to the session, which would keep itself alive that way.

    Args:
      graph: the session's graph.
      executor: the executor of its steps.
      cache: the cache in which its plans are compiled.
      gathers_metadata: Whether the session's config requests data that only a run of a callable collects.

    Attributes:
      cheaper_reads: dictionary from tensor names to names of tensors with the same value that cost less.
    """

    def __init__(self, graph: ops.Graph, executor: SessionExecutor, cache: PlanCache, gathers_metadata: bool) -> None:
        self._graph, self._executor, self._cache = graph, executor, cache
        self._gathers_metadata = gathers_metadata
        self.cheaper_reads: dict[str, str] = {}

    def make(self, session: Any, fetches: Any, feed_keys: tuple[Any, ...], compiled: bool = True) -> Plan | None:
        """Returns the plan for a new combination, or None if only `Session.run` supports it.

        The resolution is TensorFlow's own. If it fails, `Session.run` fails with the same error.

        Args:
          session: the session.
          fetches: the fetches.
          feed_keys: the fed elements.
          compiled: Whether the plan will run.
        """
        graph = self._graph
        try:
            fed = [(key, graph.as_graph_element(key, allow_tensor=True, allow_operation=False)) for key in feed_keys]
            # The order of the program's feeds and fetches doesn't affect the callable.
            fed.sort(key=lambda pair: pair[1].name)
            feeds = [tensor for _, tensor in fed]
            handler = tf_session._FetchHandler(graph, fetches, {feed.ref(): None for feed in feeds})
        except Exception:
            return None
        elements = (*handler.fetches(), *handler.targets())
        tensors, targets = (sorted(some, key=attrgetter("name")) for some in (handler.fetches(), handler.targets()))
        # A tensor that is fed and fetched has the fed value. The feeds follow the runtime's values.
        place = {id(tensor): i for i, tensor in enumerate((*tensors, *feeds))}
        if (
            not (tensors or targets)
            or handler._fetch_handles
            or len(place) != len(tensors) + len(feeds)
            or not all(graph.is_feedable(feed) for feed in feeds)
        ):
            return None
        options = config_pb2.CallableOptions(
            feed=[feed.name for feed in feeds],
            fetch=self._names_to_fetch(tensors),
            target=[target.name for target in targets],
        )
        if self._executor.mode == INLINE:
            options.run_options.inter_op_thread_pool = CALLING_THREAD
        leaves: list[Any] = []
        structure = structure_of(fetches, graph, place, leaves)
        operations = upstream_operations(elements, feeds)
        self._executor.check(session, lambda: operations, feeds)
        pinned = (*leaves, *feed_keys)
        returns_feeds = any(tensor.ref() in handler._feeds for tensor in handler._fetches)
        serialized = options.SerializeToString(deterministic=True)
        plan = Plan(structure, fed, elements, pinned, serialized, access_of(operations), returns_feeds)
        return plan if not compiled or self.compile(session, plan, operations) else None

    def compile(self, session: Any, plan: Plan, operations: set[ops.Operation] | None = None) -> bool:
        """Compiles a plan, or leaves it to TensorFlow's own executors if the cache is full.

        Args:
          session: the session.
          plan: the plan.
          operations: its operations, if known.

        Returns:
          True if the plan can run now, False if only `Session.run` supports it.
        """
        feeds = [slot.tensor for slot in plan.feeds]
        if operations is None:
            operations = upstream_operations(plan.elements, feeds)
        plan.set_size(callable_bytes(operations), not outlive_callables(operations))
        trial = None
        try:
            session._extend_graph()
            callable_ = self._cache.compile(plan)
            if callable_ is None:
                return True
            writes_checkpoint = plan.access in (VariableAccess.SAVES, VariableAccess.SAVES_COPIES)
            if self._executor.choose(session, plan, operations, writes_checkpoint) == "auto":
                options = config_pb2.CallableOptions.FromString(plan.options)
                options.run_options.inter_op_thread_pool = CALLING_THREAD
                serialized = options.SerializeToString(deterministic=True)
                make_inline = partial(self._cache.compile_variant, serialized, plan.size, plan.is_releasable)
                chosen = partial(log_choice, plan.elements, len(feeds))
                trial = Trial(callable_, make_inline, bool(session._target), chosen, callable_.compile_secs)
        except Exception:
            return False
        tensors = [element for element in plan.elements if not isinstance(element, ops.Operation)]
        large = not self._gathers_metadata and any(map(_may_be_large, tensors))
        large_results = LargeResults(self._graph, session._session, callable_.compile_secs) if large else None
        plan.compiled_to(callable_, trial, large_results)
        return True

    def _names_to_fetch(self, tensors: list[Any]) -> list[str]:
        """Returns the names of tensors or of cheaper reads, each once: distributed runtimes allow no duplicates."""
        names = [tensor.name for tensor in tensors]
        for i, name in enumerate(names):
            cheaper = self.cheaper_reads.get(name, name)
            if cheaper not in names:
                names[i] = cheaper
        return names

    def read_step_directly(self, variable: Any) -> Any:
        """Fetches the global step from its variable wherever TensorFlow's guarded read is requested.

        The guard is a conditional that returns the initial value if there is no other. It costs ten times as much as
        the read. Called once the variable is known to have a value.

        Args:
          variable: the global step.

        Returns:
          The guarded read, whose plans are now stale, or None if it must remain.
        """
        guarded = training_util._get_global_step_read(self._graph)
        direct = self._graph.as_graph_element(variable)
        # If something waits for the guarded read, its place in the order of the run matters.
        if guarded is None or guarded.consumers() or guarded.op._control_outputs or guarded.dtype != direct.dtype:
            return None
        if any(op.control_inputs for op in (guarded.op, *(source.op for source in guarded.op.inputs))):
            return None
        if direct.dtype._is_ref_dtype:
            return None
        self.cheaper_reads = {guarded.name: direct.name}
        return guarded
