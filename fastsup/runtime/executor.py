"""Which executor runs a step: measured where a wrong guess would cost, refused where it would be wrong.

Three modes. `thread_pool` is TensorFlow's own: every operation may go to another thread. `inline` runs them in the
calling thread (`RunOptions.inter_op_thread_pool = -1`), which saves the hand-over and gives up parallelism between
operations. `single_threaded` is TensorFlow's SINGLE_THREADED_EXECUTOR, which is fixed when the session is made.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.framework import ops
from tensorflow.python.training import training_util

from fastsup.runtime.plan import CompiledCallable
from fastsup.runtime.step_cost import StepCost

EXECUTORS = ("auto", "thread_pool", "inline", "single_threaded")
SINGLE_THREADED = "SINGLE_THREADED_EXECUTOR"
CALLING_THREAD = -1

# Kernels that block their thread until another operation, perhaps of the same step, has done its part. In one
# thread that other operation would never run.
_BLOCKING = frozenset(
    {
        "Unstage", "StagePeek", "MapUnstage", "MapUnstageNoKey", "MapPeek", "OrderedMapUnstage",
        "OrderedMapUnstageNoKey", "OrderedMapPeek", "PyFunc", "EagerPyFunc",
    }
)  # fmt: skip
_BLOCKING_PREFIXES = ("Collective", "Nccl", "_Host", "_Send", "_Recv", "Send", "Recv")
# These wait without a thread in TensorFlow's ordinary executor, but in the single-threaded one they hold it.
_WAITING_PREFIXES = ("QueueDequeue", "QueueEnqueue", "Barrier", "ConditionalAccumulator", "AccumulatorTake",
                     "SparseAccumulatorTake", "ResourceAccumulatorTake", "Stage", "MapStage", "OrderedMapStage",
                     "ReaderRead")  # fmt: skip
# Operations that run functions of the graph.
FUNCTION_CALLS = frozenset(
    {"If", "StatelessIf", "Case", "StatelessCase", "While", "StatelessWhile", "For", "PartitionedCall",
     "StatefulPartitionedCall", "RemoteCall", "SymbolicGradient"}
)  # fmt: skip
_FUNCTIONAL_CONTROL_FLOW = frozenset({"If", "StatelessIf", "Case", "StatelessCase", "While", "StatelessWhile", "For"})
# Low-level control flow, which the single-threaded executor refuses.
_LOW_LEVEL_CONTROL_FLOW = frozenset(
    f"{prefix}{name}" for prefix in ("", "Ref") for name in ("Switch", "Merge", "Enter", "Exit", "NextIteration")
) | {"LoopCond", "ControlTrigger"}

# A step that takes longer than this on the pool gains nothing measurable from a cheaper hand-over, and may lose much.
_HEAVY_STEP_SECS = 300e-6
_LIGHTNESS_RUNS = 3
_BLOCK_RUNS = 16
_BLOCKS = 6
# The calling thread must be clearly faster: where the two are close, TensorFlow's own mode is the one that stays so.
_CLEARLY_FASTER = 0.75
# On a remote engine both take the time of the call over the network, so that a faster step shows as a small part.
_FASTER_REMOTELY = 0.98

# What the pool costs in each step, in seconds, at the least, and for each operation: handing work over and waking up.
# Its parallelism has to be worth more, or the single-threaded executor is chosen.
_POOL_SECS = 20e-6
_POOL_SECS_PER_OPERATION = 0.5e-6


# Graphs that somebody wants to trace: the single-threaded executor records no step statistics.
_traced_graphs: weakref.WeakSet[ops.Graph] = weakref.WeakSet()


def keep_traceable(graph: ops.Graph) -> None:
    """Keeps "auto" from choosing an executor that can't be traced (`RunOptions.FULL_TRACE`) for a graph."""
    _traced_graphs.add(graph)


def check_executor(executor: Any) -> str:
    """Refuses what isn't the name of an executor mode."""
    if not isinstance(executor, str):
        raise TypeError(f"executor must be a string, got {executor!r} of type {type(executor).__name__}.")
    if executor not in EXECUTORS:
        names = ", ".join(repr(name) for name in EXECUTORS)
        raise ValueError(f"executor must be one of {names}; got {executor!r}.")
    return executor


def config_for(executor: str, graph: ops.Graph, target: str, config: Any) -> Any:
    """The session's ConfigProto under an executor mode.

    Args:
      executor: the mode; "auto" decides between the single-threaded executor and the others, for a finished graph.
      graph: the graph that the session will launch.
      target: the execution engine; a remote one keeps the executor that it has.
      config: the ConfigProto that was asked for, or None.
    """
    chosen = executor == "single_threaded" or (
        executor == "auto" and graph.finalized and not target and _suits_single_thread(graph, config)
    )
    if not chosen:
        return config
    single = config_pb2.ConfigProto()
    if config is not None:
        single.CopyFrom(config)
    else:
        from tensorflow.python.eager import context

        single.CopyFrom(context.context().config)
    single.experimental.executor_type = SINGLE_THREADED
    return single


def _suits_single_thread(graph: ops.Graph, config: Any) -> bool:
    from tensorflow.python.eager import context

    if graph in _traced_graphs:
        return False
    config = config or context.context().config
    if config.experimental.executor_type or config.log_device_placement:
        return False
    if config.graph_options.build_cost_model:
        return False  # It measures nothing that a cost model could be made of, and fails where one is to be built.
    if _count_devices(config, context.context().list_physical_devices()) > 1:
        return False
    operations: list[ops.Operation] = graph.get_operations()
    types = {op.type for op in operations}
    types_in_functions = {node.op for function in function_defs(graph) for node in function.node_def}
    if any(map(_forbids_single_thread, types | types_in_functions)):
        return False
    if not types.isdisjoint(_LOW_LEVEL_CONTROL_FLOW | _BLOCKING):
        return False
    # Conditionals and loops run as function calls there, which costs more than the hand-over saved. The one that every
    # graph with a global step has is seldom run.
    if not types.isdisjoint(_FUNCTIONAL_CONTROL_FLOW):
        guarded_read = training_util._get_global_step_read(graph)
        beside_steps = set() if guarded_read is None else operations_behind([guarded_read])
        if any(op.type in _FUNCTIONAL_CONTROL_FLOW and op not in beside_steps for op in operations):
            return False
    if any(output.dtype._is_ref_dtype for op in operations for output in op.outputs):
        return False
    # Parallelism can't save more than all there is to do: where that is little, nobody need ask what a step is.
    cost = StepCost(graph)
    if sum(map(cost.secs, operations)) <= _POOL_SECS:
        return True
    step = _step_of(graph)
    busy = sum(cost.secs(op) > 0 for op in step)
    return cost.worth_of_parallelism(step) <= _POOL_SECS + busy * _POOL_SECS_PER_OPERATION


def _count_devices(config: Any, physical: Sequence[Any]) -> int:
    """How many devices a local session has.

    Args:
      config: its ConfigProto.
      physical: the devices of the machine, as `tf.config.list_physical_devices` has them.
    """
    limits = dict(config.device_count)
    count = int(limits.get("CPU", 1))
    for kind in {device.device_type for device in physical} - {"CPU"}:
        there = sum(device.device_type == kind for device in physical)
        count += min(there, limits.get(kind, there))
    return count


def _step_of(graph: ops.Graph) -> list[ops.Operation]:
    """The operations that a step may run, in the order of their creation: not what initialises, saves or restores."""
    operations: list[ops.Operation] = graph.get_operations()
    variables = graph.get_collection(ops.GraphKeys.GLOBAL_VARIABLES) + graph.get_collection(
        ops.GraphKeys.LOCAL_VARIABLES
    )
    once = {getattr(variable, "initializer", None) for variable in variables}
    beside_steps: set[ops.Operation] = set()
    ends = []
    for op in operations:
        sources = [tensor.op for tensor in op.inputs] + list(op.control_inputs)
        if op in once or op.type in _SAVING or any(source in beside_steps for source in sources):
            beside_steps.add(op)
        elif not op._control_outputs and not any(output.consumers() for output in op.outputs):
            ends.append(op)
    behind = operations_behind(ends)
    return [op for op in operations if op in behind]


def _forbids_single_thread(op_type: str) -> bool:
    return op_type.startswith(_WAITING_PREFIXES) or op_type.startswith(_BLOCKING_PREFIXES)


def function_defs(graph: ops.Graph) -> list[Any]:
    """The functions of a graph, as FunctionDefs, from its list of them: serialising the graph costs by its size."""
    return [function.cached_definition for function in graph._functions.values()]


_SAVING = frozenset({"SaveV2", "RestoreV2", "Save", "SaveSlices", "Restore", "RestoreSlice", "MergeV2Checkpoints"})


def operations_behind(elements: Iterable[Any], feeds: Iterable[Any] = ()) -> set[ops.Operation]:
    """Every operation that computing these tensors and operations may run.

    Args:
      elements: the tensors and operations.
      feeds: tensors that are fed: what only they need isn't run.
    """
    found: set[ops.Operation] = set()
    fed = {id(tensor) for tensor in feeds}
    waiting = [element if isinstance(element, ops.Operation) else element.op for element in elements]
    while waiting:
        op = waiting.pop()
        if op not in found:
            found.add(op)
            waiting.extend(tensor.op for tensor in op.inputs if id(tensor) not in fed)
            waiting.extend(op.control_inputs)
    return found


def may_run_inline(operations: Iterable[ops.Operation]) -> bool:
    """Whether none of these operations blocks its thread."""
    return not any(op.type in _BLOCKING or op.type.startswith(_BLOCKING_PREFIXES) for op in operations)


def calls_functions(operations: Iterable[ops.Operation]) -> bool:
    """Whether one of these operations runs a function of the graph."""
    return any(op.type in FUNCTION_CALLS for op in operations)


class Trial:
    """Finds out which of two executors is faster for a plan, on the plan's own first runs.

    The pool runs first. Only a step that is light there is tried in the calling thread, and that callable is made
    only then: making one optimises the graph, which takes long for large ones. From then on they take turns, in
    blocks, because what runs beside the step (an input pipeline, say) needs a while to settle into the new rhythm.

    Args:
      pool: the callable that runs on the thread pool.
      make_inline: makes the callable that runs in the calling thread.
      remote: whether the engine that runs them is another process's, or is reached like one.
    """

    def __init__(self, pool: CompiledCallable, make_inline: Callable[[], CompiledCallable], remote: bool) -> None:
        self._pool = pool
        self._make_inline = make_inline
        self._enough = _FASTER_REMOTELY if remote else _CLEARLY_FASTER
        self._inline: CompiledCallable | None = None
        self._pool_secs: list[float] = []
        self._inline_secs: list[float] = []

    def next(self) -> CompiledCallable:
        """The callable to run now."""
        if self._inline is None or (len(self._pool_secs) + len(self._inline_secs)) // _BLOCK_RUNS % 2:
            return self._pool
        return self._inline

    def record(self, candidate: CompiledCallable, seconds: float) -> CompiledCallable | None:
        """Takes the duration of a run. Returns the faster callable once it is known, until then None."""
        samples = self._pool_secs if candidate is self._pool else self._inline_secs
        samples.append(seconds)
        if self._inline is None:
            if len(self._pool_secs) <= _LIGHTNESS_RUNS:
                return None
            # The first run set things up; it doesn't count.
            if min(self._pool_secs[1:]) > _HEAVY_STEP_SECS:
                return self._pool
            self._inline = self._make_inline()
            self._pool_secs = []
        elif len(self._pool_secs) + len(self._inline_secs) >= _BLOCKS * _BLOCK_RUNS:
            faster = median(self._inline_secs) < self._enough * median(self._pool_secs)
            return self._inline if faster else self._pool
        return None
