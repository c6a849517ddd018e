"""Chooses the executor of a step: measures when either may be faster, and refuses executors that would be wrong.

Sessions and lifted functions call `suits_single_thread` for a graph, and `decide` for a step.

There are three modes. `thread_pool` is TensorFlow's own: every operation may run in another thread. `inline` runs
operations in the calling thread (`RunOptions.inter_op_thread_pool = -1`), without switching threads or parallelism
between operations. `single_threaded` is TensorFlow's SINGLE_THREADED_EXECUTOR, which is fixed when the session is
created.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.framework import device as device_lib
from tensorflow.python.framework import ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import training_util

from fastsup.core.checks import check_choice
from fastsup.core.sessions import PlanExecutor
from fastsup.runtime.graph.cost import StepCost
from fastsup.runtime.graph.effects import CONTROL_FLOW, READS_INPUT, changes_beside_input
from fastsup.runtime.graph.operations import (
    FUNCTIONAL_CONTROL_FLOW,
    sources_of,
    types_in_functions,
    upstream_operations,
)
from fastsup.runtime.graph.placement import (
    check_one_device,
    check_threads,
    devices_of_step,
    is_on_first_cpu,
    is_on_one_device,
    threads_held,
)
from fastsup.runtime.plans import Plan

POOL, INLINE, SINGLE = "thread_pool", "inline", "single_threaded"
EXECUTORS = ("auto", POOL, INLINE, SINGLE)
SINGLE_THREADED = "SINGLE_THREADED_EXECUTOR"
CALLING_THREAD = -1
# The advice in errors of the single-threaded executor.
REMEDY = 'Pass executor="auto", "inline" or "thread_pool" instead of executor="single_threaded".'
REMEDY_FOR_CONFIG = 'Leave experimental.executor_type="SINGLE_THREADED_EXECUTOR" out of the config.'

# Kernels that block their thread until another operation, perhaps in the same step, has finished. In a single thread,
# that other operation would never run.
_BLOCKING = frozenset(
    {
        "Unstage", "StagePeek", "MapUnstage", "MapUnstageNoKey", "MapPeek", "OrderedMapUnstage",
        "OrderedMapUnstageNoKey", "OrderedMapPeek", "PyFunc", "EagerPyFunc",
    }
)  # fmt: skip
_BLOCKING_PREFIXES = ("Collective", "Nccl", "_Host", "_Send", "_Recv", "Send", "Recv")
# Operations that wait without a thread in TensorFlow's ordinary executor, but block one in the single-threaded
# executor.
_WAITING_PREFIXES = ("QueueDequeue", "QueueEnqueue", "Barrier", "ConditionalAccumulator", "AccumulatorTake",
                     "SparseAccumulatorTake", "ResourceAccumulatorTake", "Stage", "MapStage", "OrderedMapStage",
                     "ReaderRead")  # fmt: skip
# Low-level control flow, which the single-threaded executor refuses.
_LOW_LEVEL_CONTROL_FLOW = CONTROL_FLOW | {"ControlTrigger"}

# Operations that save and restore.
_SAVING = frozenset({"SaveV2", "RestoreV2", "Save", "SaveSlices", "Restore", "RestoreSlice", "MergeV2Checkpoints"})

# The minimum cost of the pool in each step, and per operation, in seconds, for passing work to threads and waking them.
# Its parallelism must be worth more, or the single-threaded executor is chosen.
_POOL_SECS = 20e-6
_POOL_SECS_PER_OPERATION = 0.5e-6

# The flags in TF_XLA_FLAGS that let XLA compile on the CPU, and that have the effect of a session's level.
_CPU_FLAGS = ("tf_xla_cpu_global_jit", "tf_xla_cpu_global_jit=true", "tf_xla_cpu_global_jit=1")
_LEVEL_FLAGS = ("tf_xla_auto_jit=1", "tf_xla_auto_jit=2")

# Graphs whose steps must be traceable. The single-threaded executor records no step statistics.
_traced_graphs: weakref.WeakSet[ops.Graph] = weakref.WeakSet()


def keep_traceable(graph: ops.Graph) -> None:
    """Prevents "auto" from choosing an executor that can't be traced (`RunOptions.FULL_TRACE`) for a graph."""
    _traced_graphs.add(graph)


def check_executor(executor: Any) -> str:
    """Returns an executor mode. Raises TypeError if it isn't a string, or ValueError if it is unknown."""
    if not isinstance(executor, str):
        raise TypeError(f"executor must be a string, got {executor!r} of type {type(executor).__name__}.")
    check_choice("executor", executor, EXECUTORS)
    return executor


def config_for(executor: str, graph: ops.Graph, target: str, config: Any) -> Any:
    """Returns the session's ConfigProto for an executor mode.

    Args:
      executor: the mode. "auto" decides between the single-threaded executor and the others, for a finished graph.
      graph: the graph that the session will launch.
      target: the execution engine. A remote engine keeps its executor.
      config: the requested ConfigProto, or None.
    """
    chosen = executor == SINGLE or (
        executor == "auto" and graph.finalized and not target and suits_single_thread(graph, config)
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


def suits_single_thread(graph: ops.Graph, config: Any, *, may_end: bool = True, only_device: str = "") -> bool:
    """Returns True if the single-threaded executor gives the same results for a graph's steps in less time.

    Args:
      graph: the graph.
      config: the session's ConfigProto, or None.
      may_end: Whether the end of a dataset may occur between a step's changes. False if this is handled.
      only_device: the device of the whole graph if it is known. Otherwise it is derived from the graph.
    """
    from tensorflow.python.eager import context

    if graph in _traced_graphs:
        return False
    config = config or context.context().config
    if config.experimental.executor_type or config.log_device_placement:
        return False
    on_cpu = not only_device or device_lib.DeviceSpec.from_string(only_device).device_type == "CPU"
    if is_jit_on(config, on_cpu):
        return False  # TensorFlow adds low-level control flow around an operation that XLA compiles.
    if config.graph_options.build_cost_model:
        return False  # This executor can't build a cost model, and fails if one is requested.
    operations: list[ops.Operation] = graph.get_operations()
    if not only_device and not runs_on_first_cpu(operations, config):
        return False
    types = {op.type for op in operations}
    types_inside = types_in_functions(graph)
    if any(map(_forbids_single_thread, types | types_inside)):
        return False
    if not types.isdisjoint(_LOW_LEVEL_CONTROL_FLOW | _BLOCKING):
        return False
    # In the single-threaded executor, conditionals and loops run as function calls, which cost more than the saved
    # thread switches. The conditional that every graph with a global step has rarely runs.
    if not types.isdisjoint(FUNCTIONAL_CONTROL_FLOW):
        guarded_read = training_util._get_global_step_read(graph)
        beside_steps = set() if guarded_read is None else upstream_operations([guarded_read])
        if any(op.type in FUNCTIONAL_CONTROL_FLOW and op not in beside_steps for op in operations):
            return False
    if any(output.dtype._is_ref_dtype for op in operations for output in op.outputs):
        return False
    # Steps of several threads that each hold two threads of the pool could wait for each other's.
    if any(held > 1 for held in threads_held(operations).values()):
        return False
    # Parallelism can't save more than the total work. If that is small, the graph need not be analyzed, unless it reads
    # a dataset.
    reads_input = may_end and not READS_INPUT.isdisjoint(types | types_inside)
    cost = StepCost(graph)
    # For the host, an accelerator's operation costs only the time to put it into a stream.
    light = not on_cpu or sum(map(cost.secs, operations)) <= _POOL_SECS
    if light and not reads_input:
        return True
    step = _step_of(graph)
    if reads_input and changes_beside_input(step):
        return False
    if light:
        return True
    busy = sum(cost.secs(op) > 0 for op in step)
    return cost.worth_of_parallelism(step) <= _POOL_SECS + busy * _POOL_SECS_PER_OPERATION


def is_jit_on(config: Any, on_cpu: bool = True) -> bool:
    """Returns True if TensorFlow may have XLA compile a session's operations that don't request it themselves.

    This depends on the level in the session's config, or in the environment. On the CPU, TensorFlow also requires a
    flag in the environment.

    Args:
      config: the session's ConfigProto.
      on_cpu: Whether the operations are on the CPU.
    """
    flags = [flag.lstrip("-") for flag in os.environ.get("TF_XLA_FLAGS", "").split()]
    if on_cpu and not any(flag in flags for flag in _CPU_FLAGS):
        return False
    level = config.graph_options.optimizer_options.global_jit_level
    if level == config_pb2.OptimizerOptions.DEFAULT:
        return any(flag in flags for flag in _LEVEL_FLAGS)
    return bool(level in (config_pb2.OptimizerOptions.ON_1, config_pb2.OptimizerOptions.ON_2))


def runs_on_first_cpu(operations: Iterable[ops.Operation], config: Any) -> bool:
    """Returns True if a local session runs these operations only on the first CPU device.

    Args:
      operations: the operations.
      config: the session's ConfigProto.
    """
    from tensorflow.python.eager import context

    return is_on_first_cpu(operations, _devices(config, context.context().list_physical_devices()))


def _devices(config: Any, physical: Sequence[Any]) -> list[str]:
    """Returns the names of a local session's devices, based on the devices from `list_physical_devices`."""
    limits = dict(config.device_count)
    counts = {"CPU": int(limits.get("CPU", 1))}
    for kind in {device.device_type for device in physical} - {"CPU"}:
        there = sum(device.device_type == kind for device in physical)
        counts[kind] = min(there, limits.get(kind, there))
    return [f"/device:{kind}:{number}" for kind, count in counts.items() for number in range(count)]


def _step_of(graph: ops.Graph) -> list[ops.Operation]:
    """Returns the operations that a step may run, in creation order, without initialization, saves and restores."""
    operations: list[ops.Operation] = graph.get_operations()
    variables = graph.get_collection(ops.GraphKeys.GLOBAL_VARIABLES) + graph.get_collection(
        ops.GraphKeys.LOCAL_VARIABLES
    )
    # A strategy's variable has one initializer for each device. The variable's own initializer is created again each
    # time it is read.
    parts = [part for variable in variables for part in getattr(variable, "_values", (variable,))]
    once = {getattr(part, "initializer", None) for part in parts}
    beside_steps: set[ops.Operation] = set()
    ends = []
    for op in operations:
        if op in once or op.type in _SAVING or any(source in beside_steps for source in sources_of(op)):
            beside_steps.add(op)
        elif not op._control_outputs and not any(output.consumers() for output in op.outputs):
            ends.append(op)
    needed = upstream_operations(ends)
    return [op for op in operations if op in needed]


def _forbids_single_thread(op_type: str) -> bool:
    return op_type.startswith(_WAITING_PREFIXES) or op_type.startswith(_BLOCKING_PREFIXES)


def decide(
    asked: str,
    operations: Iterable[ops.Operation],
    *,
    types_inside: Iterable[str] = (),
    writes_checkpoint: bool = False,
    has_one_executor: Callable[[], bool] = lambda: True,
) -> str:
    """Returns the executor of a step.

    Args:
      asked: the requested mode, or "single_threaded" for a session that only has that executor.
      operations: the step's operations.
      types_inside: the types of operations in functions that the step calls.
      writes_checkpoint: Whether the step writes a checkpoint, which takes so long that the executor doesn't matter.
      has_one_executor: function that returns True if the runtime has one executor for the whole step.

    Returns:
      A mode, or "auto" if a `Trial` should determine which of two executors is faster.
    """
    if asked == "auto":
        types = {op.type for op in operations}.union(types_inside)
        blocks = any(kind in _BLOCKING or kind.startswith(_BLOCKING_PREFIXES) for kind in types)
        stays = writes_checkpoint or blocks or not has_one_executor()
        return POOL if stays else "auto"
    return POOL if asked == INLINE and not has_one_executor() else asked


class SessionExecutor:
    """Chooses the executor of each step of a session. Methods that need the devices take the session.

    Args:
      asked: the requested executor mode.
      config: the session's ConfigProto.

    Attributes:
      mode: the requested mode, or "single_threaded" if "auto" chose it.
    """

    def __init__(self, asked: str, config: Any) -> None:
        self.mode: str = SINGLE if config.experimental.executor_type == SINGLE_THREADED else asked
        self._config = config
        self._remedy = REMEDY if asked == SINGLE else REMEDY_FOR_CONFIG
        self._device_names: list[str] = []
        # Names of fetches and feeds for which the runtime uses its thread pool, regardless of the requested mode.
        self._pooled: set[tuple[Any, ...]] = set()
        self._trace_warned = False

    def of_plan(self, plan: Plan) -> PlanExecutor:
        """Returns the executor that runs a compiled plan."""
        fetches = tuple(element.name for element in plan.elements)
        feeds = tuple(slot.tensor.name for slot in plan.feeds)
        trial = plan.trial
        if trial is not None:
            return PlanExecutor(fetches, feeds, trial.executor, trial.is_open, trial.seconds)
        # Without a trial, "auto" means TensorFlow's own mode.
        is_pooled = self.mode == "auto" or (fetches, feeds) in self._pooled
        return PlanExecutor(fetches, feeds, POOL if is_pooled else self.mode, False, None)

    def choose(self, session: Any, plan: Plan, operations: set[ops.Operation], writes_checkpoint: bool) -> str:
        """Returns the executor of a plan. Warns once if it can't be the requested one.

        Args:
          session: the session.
          plan: the plan.
          operations: its operations.
          writes_checkpoint: Whether the plan writes a checkpoint.

        Returns:
          The result of `decide`.
        """
        feeds = [slot.tensor for slot in plan.feeds]
        values = [*feeds, *(element for element in plan.elements if not isinstance(element, ops.Operation))]

        def has_one_executor() -> bool:
            # The executors of several devices wait for each other, so none of them may block a thread.
            if session._target and self.mode == INLINE:
                return True
            devices = self._devices(session)
            return len(devices) == 1 or (not session._target and is_on_one_device(operations, values, devices))

        chosen = decide(self.mode, operations, writes_checkpoint=writes_checkpoint, has_one_executor=has_one_executor)
        if self.mode == INLINE and chosen == POOL:
            self._warn_of_pool(devices_of_step(operations, values, self._devices(session)))
            self._pooled.add((tuple(element.name for element in plan.elements), tuple(feed.name for feed in feeds)))
        return chosen

    def _warn_of_pool(self, places: dict[str, str]) -> None:
        if not self._pooled:
            logging.warning(
                'executor="inline" has no effect on a step of several devices, which TensorFlow runs on its thread '
                "pool: %s. See `python -m fastsup docs executors`.",
                ", ".join(f"{what} on {name}" for name, what in places.items()),
            )

    def _devices(self, session: Any) -> list[str]:
        if not self._device_names:
            self._device_names = [device.name for device in session.list_devices()]
        return self._device_names

    def check(self, session: Any, operations: Callable[[], set[ops.Operation]], feeds: Sequence[Any]) -> None:
        """Rejects a step that the single-threaded executor would never finish.

        Args:
          session: the session.
          operations: function that returns the step's operations.
          feeds: the fed tensors.

        Raises:
          tf.errors.UnimplementedError: If the step is such a step. The message contains the remedy.
        """
        if self.mode != SINGLE or session._target or session._closed:
            return
        found = operations()
        if len(self._devices(session)) > 1:
            check_one_device(found, feeds, self._devices(session), self._remedy)
        check_threads(found, self._config, self._remedy)

    def warn_of_no_trace(self, options: Any) -> None:
        """Warns once if step statistics are requested from an executor that doesn't record any.

        Args:
          options: the RunOptions of a run.
        """
        traced = getattr(options, "trace_level", 0) != config_pb2.RunOptions.NO_TRACE
        if traced and self.mode == SINGLE and not self._trace_warned:
            self._trace_warned = True
            logging.warning(
                "The single-threaded executor records no step statistics: the RunMetadata of this run has none. "
                'Pass executor="inline" or executor="thread_pool" to trace runs. See '
                "`python -m fastsup docs dropin#sessions-and-executors`."
            )
