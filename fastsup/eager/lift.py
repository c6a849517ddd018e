"""Lifting, which converts a ConcreteFunction's graph to a session's graph that shares the eager context's devices.

The function's operations become operations of the graph. Its variables are the eager variables, found by their handles'
names. Other captured tensors are read from slots. Its arguments are placeholders, or slots for resources and variants,
which can't be fed to a session.
"""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tensorflow.core.framework import attr_value_pb2
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.eager import context
from tensorflow.python.framework import dtypes, errors_impl, importer, ops
from tensorflow.python.ops import (
    array_ops,
    control_flow_ops,
    gen_functional_ops,
    gen_resource_variable_ops,
    resource_variable_ops,
)

from fastsup.common.interpreter_end import no_interpreter_exit
from fastsup.eager.calls import CaptureSlot, scope_of_devices
from fastsup.eager.devices import (
    OfEagerContext,
    Placement,
    SharedCallable,
    SharedSession,
    VariableHandle,
    is_compiled_by_xla,
    variable_handle,
)
from fastsup.eager.eager_session import EagerCallable, EagerSession
from fastsup.eager.rewriting import add_functions, flattened
from fastsup.runtime.errors import ErrorSources
from fastsup.runtime.executor import CALLING_THREAD, SINGLE_THREADED, runs_on_first_cpu
from fastsup.runtime.graph.operations import FUNCTIONAL_CONTROL_FLOW, PLAIN_CALLS, function_defs, types_in_functions

_OPAQUE = (dtypes.resource, dtypes.variant)
# Placeholders have names that no function uses, because the arguments' names are needed for their replacements.
_FEED = "fastsup_feed/"
# Operations that belong to several devices or processes.
_SEVERAL_DEVICES = ("Collective", "Nccl", "_Send", "_Recv", "Send", "Recv", "TPU", "_TPU", "Remote")


class NotLiftable(Exception):
    """The reason why a function can't be lifted."""


class LiftedGraph:
    """The graph of a ConcreteFunction, prepared for sessions.

    TensorFlow's optimizer uses the shapes of a function's arguments, but not of placeholders, because any value may be
    fed. When the graph is finalized, the placeholders are therefore replaced with argument operations, as in a
    function. Each reads an argument by its position among the feeds of a run.

    Args:
      concrete: the ConcreteFunction.
      is_fed_by_name: Whether runs may have feeds other than all placeholders in order. The placeholders then remain,
        each with an operation that sets its shape.
      placement: TensorFlow's placement of the function in a call, or None if the eager context has one device, or if
        TensorFlow should place the function in a session.
      variables: the arguments that are always the same variables, by position among the flat inputs.

    Attributes:
      concrete: the ConcreteFunction.
      placement: the argument.
      variables: the argument.
      graph: the graph. Operations may be added until it is finalized.
      feeds: list of the placeholders of the arguments that can be fed.
      outputs: list of the tensors of the function's results.
      targets: list of the operations that run for their effects.
      executor: the executor for which it was last compiled.
      opaque_inputs: list of pairs of an argument's position among the function's flat inputs, and the SlotVariable from
        which the graph reads it.
      is_compiled_by_xla: Whether XLA compiles the function, or a part of it.
      is_one_xla_call: Whether XLA compiles all of it, so that the graph is one call.
      keeps_random_sequences: Whether its operations draw from sequences that `tf.random.set_seed` restarts.

    Raises:
      NotLiftable: If the function can't be lifted. The message contains the reason.
    """

    def __init__(
        self,
        concrete: Any,
        *,
        is_fed_by_name: bool = False,
        placement: Placement | None = None,
        variables: Mapping[int, VariableHandle] = MappingProxyType({}),
    ) -> None:
        self.concrete = concrete
        self.placement = placement
        self.variables = variables
        # None if there is only one device, so that no operation has to be placed.
        self._scope = scope_of_devices()
        self._is_fed_by_name = is_fed_by_name
        self.executor: str = ""
        self._sessions: dict[bool, EagerSession] = {}
        self._error_sources = ErrorSources([])
        self._searchable: LiftedGraph | None = None
        self._config = context.context().config
        inner = concrete.graph
        check_liftable(concrete)
        self.is_compiled_by_xla: bool = any(map(is_compiled_by_xla, _definitions(concrete)))
        self.is_one_xla_call: bool = is_compiled_by_xla(concrete.function_def)
        if self.is_compiled_by_xla and self.placement is not None:
            _check_device_of_xla(self.placement)
        self.keeps_random_sequences: bool = keeps_random_sequences(concrete)
        self.opaque_inputs: list[tuple[int, SlotVariable]] = []
        self.captured: list[SlotVariable] = []
        self.graph: ops.Graph = _ImportingGraph()
        self.outputs: list[Any]
        self.targets: list[Any]
        # The optimizer sorts the terms of a sum by name, so other names would change the last bits.
        names = [argument.name for argument in concrete.function_def.signature.input_arg]
        with self.graph.as_default():
            argument_count = len(inner.inputs) - len(inner.captures)
            self.feeds: list[Any] = []
            self._shapes_of_feeds: list[dict[str, Any]] = []
            arguments = enumerate(zip(names, inner.inputs[:argument_count], strict=False))
            outer = [self._argument(place, name, tensor) for place, (name, tensor) in arguments]
            variables = {id(variable.handle): variable for variable in inner.variables}
            outer += [
                self._capture(name, external, variables.get(id(external)))
                for name, (external, _) in zip(names[argument_count:], inner.captures, strict=True)
            ]
            if self.is_one_xla_call:
                outputs, self.targets = self._call(outer)
            else:
                outputs, self.targets = self._import(inner, outer)
            self.outputs = self._distinct(outputs, outer)
        self._flatten(outer)
        self._place()
        # A graph that is fed by name belongs to a program, and may outlive this object.
        self._dismantles: Any = None if is_fed_by_name else _dismantles(self, self.graph)

    def _argument(self, place: int, name: str, inside: Any) -> Any:
        if place in self.variables:
            return self.variables[place].in_graph(name)
        if inside.dtype in _OPAQUE:
            slot = SlotVariable(None, inside.dtype, inside.shape)
            self.opaque_inputs.append((place, slot))
            return slot.read(name)
        device = None if self.placement is None else self.placement.feeds[len(self.feeds)]
        with ops.device(device):
            feed = array_ops.placeholder(inside.dtype, inside.shape, name=_FEED + name)
        self.feeds.append(feed)
        attributes = self.concrete.function_def.arg_attr[place].attr
        self._shapes_of_feeds.append({key: attributes[key] for key in ("_output_shapes",) if key in attributes})
        if self._is_fed_by_name and inside.shape.rank is not None:
            return array_ops.ensure_shape(feed, inside.shape, name=name)
        return feed

    def _capture(self, name: str, external: Any, variable: Any) -> Any:
        handle = variable_handle(external)
        if variable is not None and handle is None:
            raise NotLiftable(f"the handle of the variable {variable.name} is unknown: {external!r}")
        device = None if self._scope is None else external.device
        # TensorFlow doesn't report this for all variables. A slot for a handle can only be on the host.
        if handle is not None and (variable is not None or device is not None):
            return handle.in_graph(name, device is not None)
        is_copied = device is not None and external.dtype not in _OPAQUE
        if device is not None and not is_copied and "device:CPU:0" not in device:
            raise NotLiftable(f"it captures a resource on {device}")
        slot = SlotVariable(external, external.dtype, external.shape, external.backing_device if is_copied else "CPU:0")
        self.captured.append(slot)
        return slot.read(name)

    def _import(self, inner: Any, outer: list[Any]) -> tuple[list[Any], list[Any]]:
        names = {tensor.name: outside for tensor, outside in zip(inner.inputs, outer, strict=True)}
        results = inner.outputs[: len(self.concrete.function_def.signature.output_arg)]
        wanted = [tensor.name for tensor in results if tensor.name not in names]
        operations = [operation.name for operation in inner.control_outputs]
        graph_def = inner.as_graph_def()
        _remove_nodes(graph_def, {tensor.op.name for tensor in inner.inputs})
        used = {name.lstrip("^").split(":")[0] for node in graph_def.node for name in node.input}
        if isinstance(self.graph, _ImportingGraph):
            is_placed = self._scope is not None or any(node.device for node in graph_def.node)
            self.graph.adds_in_place = not is_placed and not any("_class" in node.attr for node in graph_def.node)
        imported = importer.import_graph_def(
            graph_def,
            input_map={name: outside for name, outside in names.items() if name.split(":")[0] in used},
            return_elements=wanted + operations,
            name="",
        )
        found = dict(zip(wanted, imported[: len(wanted)], strict=True))
        outputs = [names.get(tensor.name, found.get(tensor.name)) for tensor in results]
        # Make only the effects targets, because a call among the targets would also compute unused results.
        return outputs, [control_flow_ops.group(*imported[len(wanted) :])] if operations else []

    def _call(self, outer: list[Any]) -> tuple[list[Any], list[Any]]:
        """Adds one operation that calls the function, so that XLA compiles it as a whole."""
        name = attr_value_pb2.NameAttrList(name=add_functions(self.concrete, _definitions(self.concrete), self.graph))
        types = [tensor.dtype for tensor in self.concrete.graph.outputs]
        outputs = gen_functional_ops.stateful_partitioned_call(args=outer, Tout=types, f=name)
        operation = outputs[0].op if types else outputs
        operation._set_attr("_XlaMustCompile", attr_value_pb2.AttrValue(b=True))
        return (list(outputs) if types else []), [operation]

    def _distinct(self, outputs: list[Any], outer: list[Any]) -> list[Any]:
        """Returns the outputs as distinct, unfed tensors, because a session refuses duplicates and fed ones."""
        taken = {id(tensor) for tensor in outer}
        distinct = []
        for tensor in outputs:
            fetch = array_ops.identity(tensor) if id(tensor) in taken else tensor
            taken.add(id(tensor))
            distinct.append(fetch)
        return distinct

    def _flatten(self, arguments: list[Any]) -> None:
        """Flattens the functions that the graph calls, to expose their costs, effects and possible failures."""
        operations = self.graph.get_operations()
        types = {operation.type for operation in operations} | types_in_functions(self.graph)
        if types.isdisjoint(PLAIN_CALLS) or self.is_compiled_by_xla or not types.isdisjoint(FUNCTIONAL_CONTROL_FLOW):
            return
        if self._scope is None and not runs_on_first_cpu(operations, self._config):
            return
        kept = [element.name for element in (*self.feeds, *self.fetches)]
        names = [tensor.op.name for tensor in arguments if tensor.dtype not in _OPAQUE]
        try:
            self.graph = flattened(self.graph, kept, names)
        except (errors_impl.OpError, ValueError):
            return  # The unchanged graph computes the same results.
        self.feeds, self.outputs, self.targets = (
            [self.graph.as_graph_element(element.name) for element in elements]
            for elements in (self.feeds, self.outputs, self.targets)
        )

    def _place(self) -> None:
        """Places the operations on the same devices as TensorFlow does in the function.

        If TensorFlow hasn't run the function yet, it places the operations itself, on the scope's device if possible.
        """
        known = {} if self.placement is None else self.placement.operations
        others = self._scope if self.placement is None else self.placement.only_device
        for operation in self.graph.get_operations():
            device = known.get(operation.name, others)
            if device and not operation.device:
                operation._set_device(device)

    def finalize(self) -> None:
        """Finalizes the graph unless it is already final."""
        if not self._is_fed_by_name and not self.graph.finalized:
            for place, feed in enumerate(self.feeds):
                _replace(feed, self._read(place, feed))
        self.graph.finalize()

    def _read(self, place: int, feed: Any) -> Any:
        """Reads an argument as a function does, by its position among the call's arguments."""
        attributes = {
            "T": attr_value_pb2.AttrValue(type=feed.dtype.as_datatype_enum),
            "index": attr_value_pb2.AttrValue(i=place),
            **self._shapes_of_feeds[place],
        }
        name = feed.op.name.removeprefix(_FEED)
        with self.graph.as_default(), ops.device(feed.op.device or None):
            return self.graph._create_op_internal("_Arg", [], [feed.dtype], name=name, attrs=attributes).outputs[0]

    @property
    def is_on_several_devices(self) -> bool:
        """True if the runtime has an executor for each of the function's devices, and there are several."""
        return self.placement is not None and not self.placement.only_device

    @property
    def fetches(self) -> list[Any]:
        """The tensors and operations that a step computes."""
        return [*self.outputs, *self.targets]

    def session_config(self, single_threaded: bool) -> Any:
        """Returns the ConfigProto of a session for the graph.

        Args:
          single_threaded: Whether the session has the single-threaded executor.

        Returns:
          A ConfigProto with which TensorFlow optimizes the graph like the function.
        """
        config = config_pb2.ConfigProto()
        config.CopyFrom(self._config)
        if self.is_compiled_by_xla:
            config.graph_options.rewrite_options.disable_meta_optimizer = True
        if single_threaded:
            config.experimental.executor_type = SINGLE_THREADED
        return config

    def compile(self, executor: str) -> EagerCallable:
        """Creates a callable of the graph. The first one for an executor doesn't compile anything yet.

        Args:
          executor: "thread_pool", "inline" or "single_threaded".

        Returns:
          An EagerCallable whose inputs are the function's flat arguments, without resources and variants.

        Raises:
          tf.errors.OpError: If the runtime refuses the graph.
        """
        single = executor == "single_threaded"
        self.executor = executor
        with no_interpreter_exit:
            session = self._session(single)
            options = config_pb2.CallableOptions()
            options.feed.extend(tensor.name for tensor in self.feeds)
            options.fetch.extend(tensor.name for tensor in self.outputs)
            options.target.extend(operation.name for operation in self.targets)
            places = self._set_devices(options)
            if executor == "inline":
                options.run_options.inter_op_thread_pool = CALLING_THREAD
            session.session._extend_graph()
            owner = SharedCallable(session.session, options)
            return session.callable(owner, owner._handle, len(self.feeds), len(self.outputs), places)

    def _set_devices(self, options: Any) -> Sequence[tuple[str, str]]:
        """Makes feeds and fetches stay on their devices. Returns the fetches' devices, or nothing for one device."""
        if self.placement is None:
            return ()
        # Skip the synchronization. A read of a tensor waits for the tensor's device, as for any eager tensor.
        options.fetch_skip_sync = True
        for feed, device in zip(self.feeds, self.placement.feeds, strict=True):
            options.feed_devices[feed.name] = device
        for fetch, (memory, _) in zip(self.outputs, self.placement.results, strict=True):
            options.fetch_devices[fetch.name] = memory
        return self.placement.results

    def _session(self, single_threaded: bool) -> EagerSession:
        session = self._sessions.get(single_threaded)
        if session is None:
            config = self.session_config(single_threaded)
            session = self._sessions[single_threaded] = EagerSession(lambda: SharedSession(self.graph, config))
        return session

    def with_operation(self, error: Any, inputs: Sequence[Any]) -> Any:
        """Adds the operation's name, which the single-threaded executor leaves out, to the error of a failed call.

        Args:
          error: a `tf.errors.OpError`.
          inputs: the tensors of the function's flat arguments, including resources and variants.
        """
        if self.executor != "single_threaded":
            return error
        if self._dismantles is not None:
            self._dismantles.detach()  # The error contains an operation of the graph.
        searched = self if isinstance(error, errors_impl.OutOfRangeError) else self._searchable_graph()
        session = searched._session(single_threaded=True).session
        arrays = [value.numpy() for value in inputs if value.dtype not in _OPAQUE]
        feeds = dict(zip(searched.feeds, arrays, strict=True))
        # If a dataset has ended, nothing runs again to determine which one.
        compile_ = _compile_nothing if searched is self else session._make_callable_from_options
        return self._error_sources.named(error, searched.fetches, feeds, compile_)

    def _searchable_graph(self) -> LiftedGraph:
        """Returns the original graph. In this one, operations that could be run again may wait for an effect."""
        if self._searchable is None:
            self._searchable = LiftedGraph(
                self.concrete, is_fed_by_name=True, placement=self.placement, variables=self.variables
            )
            self._searchable.finalize()
        return self._searchable

    def forget_sessions(self) -> None:
        """Makes callables that are compiled from now on start with new kernels in their initial state.

        A session lives as long as one of its callables.
        """
        self._sessions = {}

    def leave_open(self) -> None:
        """Keeps the sessions open for the lifetime of the process."""
        for session in self._sessions.values():
            session.session.left_open = True
        if self._searchable is not None:
            self._searchable.leave_open()

    def release_all(self) -> None:
        """Releases the tensors in the slots. The graph can no longer be run."""
        for slot in self.captured + [slot for _, slot in self.opaque_inputs]:
            slot.empty()
        if self._searchable is not None:
            self._searchable.release_all()


class _ImportingGraph(ops.Graph):  # type: ignore[misc]
    """A graph that doesn't pass imported operations to the importer if there is nothing to place.

    The importer checks each one's colocation by catching an error, which takes a fifth of the lifting time.
    """

    adds_in_place = False

    def _add_new_tf_operations(self, compute_devices: bool = True) -> list[Any]:
        added: list[Any] = super()._add_new_tf_operations(compute_devices)
        return [] if self.adds_in_place else added


def _dismantles(lifted: LiftedGraph, graph: ops.Graph) -> Any:
    """Deletes a graph with its object instead of in the next garbage collection, perhaps a hundred graphs later."""
    finalizer = weakref.finalize(lifted, ops.dismantle_graph, graph)
    finalizer.atexit = False
    return finalizer


def _check_device_of_xla(placement: Placement) -> None:
    """Raises NotLiftable for a function that XLA compiles (partly or completely), unless it is on one CPU device."""
    if "device:CPU:" not in placement.only_device:
        raise NotLiftable("XLA compiles it or a part of it (jit_compile=True), and not all of it is on one CPU device")


def _compile_nothing(options: Any) -> Any:
    raise NotImplementedError


def _replace(tensor: Any, other: Any) -> None:
    """Replaces a tensor with another, also in the control dependencies on its operation."""
    for operation in tensor.consumers():
        for place, taken in enumerate(operation.inputs):
            if taken is tensor:
                operation._update_input(place, other)
    for operation in tensor.op._control_outputs:
        waits = [other.op if wait is tensor.op else wait for wait in operation.control_inputs]
        operation._remove_all_control_inputs()
        operation._add_control_inputs(waits)


def _remove_nodes(graph_def: Any, names: set[str]) -> None:
    """Removes nodes from a GraphDef. Nodes that were colocated with them may then be anywhere."""
    places = {f"loc:@{name}".encode() for name in names}
    nodes = [node for node in graph_def.node if node.name not in names]
    for node in nodes:
        if "_class" in node.attr:
            kept = [place for place in node.attr["_class"].list.s if place not in places]
            node.attr["_class"].list.s[:] = kept
    del graph_def.node[:]
    graph_def.node.extend(nodes)


def _definitions(concrete: Any) -> list[Any]:
    """Returns the FunctionDefs of a ConcreteFunction and of the functions that it calls."""
    return [concrete.function_def, *function_defs(concrete.graph)]


def keeps_random_sequences(concrete: Any) -> bool:
    """Returns True if an operation of a function draws from a sequence with a seed, and keeps its position.

    Args:
      concrete: the ConcreteFunction.
    """
    nodes = (node for definition in _definitions(concrete) for node in definition.node_def)
    return any("seed2" in node.attr and (node.attr["seed"].i or node.attr["seed2"].i) for node in nodes)


def check_liftable(concrete: Any) -> None:
    """Raises NotLiftable if lifting would change a function's behavior.

    Args:
      concrete: the ConcreteFunction.
    """
    inner = concrete.graph
    if getattr(inner, "deferred_external_captures", ()) or any(callable(value) for value in concrete._captured_inputs):
        raise NotLiftable("it captures values that are recomputed in each call")
    external = [tensor for tensor, _ in inner.captures]
    captured = concrete.captured_inputs
    if len(captured) != len(external) or any(a is not b for a, b in zip(captured, external, strict=True)):
        raise NotLiftable("its captured tensors were replaced")
    for tensor in external:
        if not isinstance(tensor, ops.EagerTensor):
            raise NotLiftable(f"it captures {tensor!r}, which isn't an eager tensor")
    for variable in inner.variables:
        if not isinstance(variable, resource_variable_ops.BaseResourceVariable):
            raise NotLiftable(f"{variable.name} is a {type(variable).__name__}: it belongs to several devices")
    types = {operation.type for operation in inner.get_operations()} | types_in_functions(inner)
    for kind in sorted(types):
        if kind.startswith(_SEVERAL_DEVICES):
            raise NotLiftable(f"the operation {kind} belongs to several devices or processes")


_CONTAINER = "fastsup"
_numbers = itertools.count()


class SlotVariable:
    """A variable of the eager context that a graph reads by name.

    The tensor in it, usually a resource or a variant, isn't copied. The variable is deleted with this object.

    Args:
      tensor: its initial tensor, or None.
      dtype: type of its tensors.
      shape: shape of its tensors.
      device: device whose memory contains it.
    """

    def __init__(self, tensor: Any, dtype: Any, shape: Any, device: str = "CPU:0") -> None:
        self._dtype, self._shape, self._device = dtype, shape, device
        self._name = f"fastsup_slot_{next(_numbers)}"
        with context.eager_mode(), ops.device(device):
            self._variable = _Variable(self._open(), device)
        self.slot: CaptureSlot = CaptureSlot(None, self._variable.write)
        if tensor is not None:
            self.slot.store(tensor)

    def _open(self) -> Any:
        return gen_resource_variable_ops.var_handle_op(
            dtype=self._dtype, shape=self._shape, shared_name=self._name, container=_CONTAINER, name=self._name
        )

    def read(self, name: str) -> Any:
        """Returns the tensor with the slot's content, in the default graph.

        Args:
          name: name of the operation.
        """
        with ops.device(self._device):
            return gen_resource_variable_ops.read_variable_op(self._open(), self._dtype, name=name)

    def empty(self) -> None:
        """Deletes the variable, and thereby the reference to its tensor."""
        self._variable.write(None)


class _Variable(OfEagerContext):
    """The variable of a slot. It is deleted with this object."""

    # Variables that couldn't be deleted in the garbage collector's context. The next new variable deletes them.
    _left: list[_Variable] = []  # noqa: RUF012

    def __init__(self, handle: Any, device: str) -> None:
        self._handle = None
        self._device = device
        self._is_there = False
        self._take_context()
        self._handle = handle
        while self._left:
            self._left.pop().write(None)

    def write(self, tensor: Any) -> None:
        """Writes a tensor. None deletes the variable, and the next tensor creates it again."""
        if tensor is not None:
            self._is_there = True
            with context.eager_mode(), ops.device(self._device):
                gen_resource_variable_ops.assign_variable_op(self._handle, tensor)
        elif self._is_there and self._usable():
            self._is_there = False
            with self._completed_before_exit, context.eager_mode(), ops.device(self._device):
                gen_resource_variable_ops.destroy_resource_op(self._handle, ignore_lookup_error=True)

    def __del__(self) -> None:
        was_there = self._is_there
        try:
            self.write(None)
        except AttributeError:
            # In a new thread, there is no stack of contexts until TensorFlow has created the thread's part of the eager
            # context.
            self._is_there = was_there
            self._left.append(self)


_MOST_GRAPHS = 512
# The measured memory of a lifted graph, without TensorFlow's trace, which takes about twice as much.
_BYTES_OF_A_GRAPH, _BYTES_OF_AN_OPERATION = 50_000, 10_000
# The measured duration of lifting, for traces of 11 to 20,000 operations.
_SECS_OF_A_LIFT, _SECS_OF_AN_OPERATION = 8e-3, 2e-4
_SHARE_OF_MEMORY = 0.25

# The lifted steps of the process, with the estimated bytes of each.
_bytes_of_steps: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


class LiftLimit:
    """Decides whether one more trace of a function may be lifted.

    Args:
      most_graphs: maximum number of lifted graphs per function.
      most_bytes: maximum estimated memory of all lifted graphs in the process. If None, a quarter of the machine's
        memory.
    """

    def __init__(self, most_graphs: int = _MOST_GRAPHS, most_bytes: int | None = None) -> None:
        self._most_graphs = most_graphs
        self._most_bytes = int(_SHARE_OF_MEMORY * _machine_bytes()) if most_bytes is None else most_bytes

    def why_full(self, concrete: Any, lifted: int) -> str:
        """Returns the reason why a trace shouldn't be lifted.

        Args:
          concrete: the ConcreteFunction.
          lifted: number of its function's lifted traces.

        Returns:
          The reason, or "" if there is room.
        """
        if lifted >= self._most_graphs:
            return f"{lifted} of its traces are already lifted, which is the limit"
        taken = sum(list(_bytes_of_steps.values()))
        if taken + _graph_bytes(concrete) > self._most_bytes:
            return (
                f"its graph would take about {_graph_bytes(concrete) / 1e6:,.1f} MB, and those of the process take "
                f"{taken / 1e6:,.0f} of {self._most_bytes / 1e6:,.0f} already"
            )
        return ""

    def add(self, step: Any) -> None:
        """Counts a lifted step for as long as it exists.

        Args:
          step: the LiftedStep.
        """
        _bytes_of_steps[step] = _graph_bytes(step.graph.concrete)


def _machine_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _operations_of(concrete: Any) -> int:
    inside = sum(len(definition.node_def) for definition in function_defs(concrete.graph))
    return len(concrete.graph.get_operations()) + inside


def _graph_bytes(concrete: Any) -> int:
    """Estimates the memory of a trace's lifted graph in bytes."""
    return _BYTES_OF_A_GRAPH + _BYTES_OF_AN_OPERATION * _operations_of(concrete)


def secs_to_lift(concrete: Any) -> float:
    """Estimates the seconds that lifting a trace takes.

    Args:
      concrete: the ConcreteFunction.
    """
    return _SECS_OF_A_LIFT + _SECS_OF_AN_OPERATION * _operations_of(concrete)
