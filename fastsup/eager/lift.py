"""Lifting: the graph of a ConcreteFunction becomes the graph of a session that shares the eager context's devices.

The function's operations become operations of the graph itself. Its variables are the eager ones, found by the names
of their handles. Other captured tensors come out of boxes. Its arguments are placeholders, or boxes where they are
resources or variants, which a session can't be fed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tensorflow.core.framework import attr_value_pb2
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import session as tf_session
from tensorflow.python.eager import context
from tensorflow.python.framework import dtypes, errors_impl, importer, ops
from tensorflow.python.ops import (
    array_ops,
    control_flow_ops,
    gen_functional_ops,
    gen_resource_variable_ops,
    resource_variable_ops,
)

from fastsup.common.interpreter_end import uninterrupted
from fastsup.eager.boxes import BoxVariable
from fastsup.eager.context_life import OfEagerContext
from fastsup.eager.eager_session import SESSION_TARGET, EagerCallable, EagerSession
from fastsup.eager.flattening import flattened
from fastsup.runtime.errors import ErrorSources
from fastsup.runtime.executor import CALLING_THREAD, SINGLE_THREADED, runs_on_first_cpu
from fastsup.runtime.graph.operations import FUNCTIONAL_CONTROL_FLOW, PLAIN_CALLS, function_defs, types_in_functions

__all__ = ["LiftedGraph", "NotLiftable", "OverEagerContext", "SharedSession", "names_of_handle"]

_HANDLE = re.compile(r'<ResourceHandle\(name="(.*)", device="([^"]*)", container="([^"]*)", type=', re.DOTALL)
_OPAQUE = (dtypes.resource, dtypes.variant)
# Placeholders have names that no function has: those of the arguments are kept for what stands in their place.
_FEED = "fastsup_feed/"
# Operations that belong to several devices or processes.
_SEVERAL_DEVICES = ("Collective", "Nccl", "_Send", "_Recv", "Send", "Recv", "TPU", "_TPU", "Remote")


class NotLiftable(Exception):
    """The reason why a function can't be lifted."""


class _Callable(tf_session.BaseSession._Callable):  # type: ignore[misc]
    _uninterrupted = uninterrupted

    def __del__(self) -> None:
        if self._session._usable():
            with self._uninterrupted:
                super().__del__()


class OverEagerContext(OfEagerContext):
    """Base of sessions over the eager context's devices. One that is left open lives as long as the process."""

    left_open = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._session = None
        self._take_context()
        super().__init__(*args, **kwargs)

    def _usable(self) -> bool:
        return not self.left_open and super()._usable()

    def __del__(self) -> None:
        if self._usable():
            with self._uninterrupted:
                super().__del__()  # type: ignore[misc]


class SharedSession(OverEagerContext, tf_session.Session):  # type: ignore[misc]
    """A session over the eager context's devices.

    Args:
      graph: its graph.
      config: its ConfigProto.
    """

    def __init__(self, graph: ops.Graph, config: Any) -> None:
        super().__init__(SESSION_TARGET, graph, config)


class LiftedGraph:
    """The graph of a ConcreteFunction, ready to be run in sessions.

    TensorFlow's optimizer uses the shapes of a function's arguments. It doesn't use those of placeholders, which may be
    fed anything. So the placeholders are replaced, when the graph is finalized, by what a function has: operations each
    of which reads an argument by its position among the feeds of a run.

    Args:
      concrete: the ConcreteFunction.
      is_fed_by_name: whether runs may have other feeds than all placeholders in their order. The placeholders then
        stay, each with an operation that tells its shape.

    Attributes:
      concrete: the ConcreteFunction.
      graph: the graph. It may get more operations until it is finalized.
      feeds: list of the placeholders of the arguments that can be fed.
      outputs: list of the tensors of the function's results.
      targets: list of the operations that run for their effects.
      executor: the executor that it was last compiled for.
      opaque_inputs: list of pairs of the position of an argument among the function's flat inputs and the BoxVariable
        that the graph reads it from.
      is_compiled_by_xla: whether XLA compiles the function, or a part of it.
      keeps_random_sequences: whether operations in it draw from sequences that `tf.random.set_seed` begins anew.

    Raises:
      NotLiftable: the function can't be lifted; the message says why.
    """

    def __init__(self, concrete: Any, *, is_fed_by_name: bool = False) -> None:
        self.concrete = concrete
        self._is_fed_by_name = is_fed_by_name
        self.executor: str = ""
        self._sessions: dict[bool, EagerSession] = {}
        self._error_sources = ErrorSources([])
        self._searchable: LiftedGraph | None = None
        self._config = context.context().config
        inner = concrete.graph
        _check(concrete)
        definitions = [concrete.function_def, *function_defs(inner)]
        self.is_compiled_by_xla: bool = any(_is_compiled(definition) for definition in definitions)
        self.keeps_random_sequences: bool = any(_keeps_random_sequences(definition) for definition in definitions)
        self.opaque_inputs: list[tuple[int, BoxVariable]] = []
        self.captured: list[BoxVariable] = []
        self.graph: ops.Graph = ops.Graph()
        self.outputs: list[Any]
        self.targets: list[Any]
        # The optimizer sorts what it adds up by its names: with other names, the last bits would differ.
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
            if _is_compiled(concrete.function_def):
                outputs, self.targets = self._call(outer)
            else:
                outputs, self.targets = self._import(inner, outer)
            self.outputs = self._distinct(outputs, outer)
        self._flatten(outer)

    def _argument(self, place: int, name: str, inside: Any) -> Any:
        if inside.dtype in _OPAQUE:
            box = BoxVariable(None, inside.dtype, inside.shape)
            self.opaque_inputs.append((place, box))
            return box.read(name)
        feed = array_ops.placeholder(inside.dtype, inside.shape, name=_FEED + name)
        self.feeds.append(feed)
        attributes = self.concrete.function_def.arg_attr[place].attr
        self._shapes_of_feeds.append({key: attributes[key] for key in ("_output_shapes",) if key in attributes})
        if self._is_fed_by_name and inside.shape.rank is not None:
            return array_ops.ensure_shape(feed, inside.shape, name=name)
        return feed

    def _capture(self, name: str, external: Any, variable: Any) -> Any:
        if variable is not None:
            names = names_of_handle(external)
            if names is None:
                raise NotLiftable(f"the handle of the variable {variable.name} is unknown: {external!r}")
            return gen_resource_variable_ops.var_handle_op(
                dtype=variable.dtype, shape=variable.shape, shared_name=names[0], container=names[1], name=name
            )
        box = BoxVariable(external, external.dtype, external.shape)
        self.captured.append(box)
        return box.read(name)

    def _import(self, inner: Any, outer: list[Any]) -> tuple[list[Any], list[Any]]:
        names = {tensor.name: outside for tensor, outside in zip(inner.inputs, outer, strict=True)}
        wanted = [tensor.name for tensor in inner.outputs if tensor.name not in names]
        operations = [operation.name for operation in inner.control_outputs]
        graph_def = inner.as_graph_def()
        _remove_nodes(graph_def, {tensor.op.name for tensor in inner.inputs})
        used = {name.lstrip("^").split(":")[0] for node in graph_def.node for name in node.input}
        imported = importer.import_graph_def(
            graph_def,
            input_map={name: outside for name, outside in names.items() if name.split(":")[0] in used},
            return_elements=wanted + operations,
            name="",
        )
        found = dict(zip(wanted, imported[: len(wanted)], strict=True))
        outputs = [names.get(tensor.name, found.get(tensor.name)) for tensor in inner.outputs]
        # The effects alone: a call among the targets would compute the results that nobody takes, too.
        return outputs, [control_flow_ops.group(*imported[len(wanted) :])] if operations else []

    def _call(self, outer: list[Any]) -> tuple[list[Any], list[Any]]:
        """One operation that calls the function, for XLA to compile it as a whole."""
        self.concrete.add_to_graph(self.graph)
        name = attr_value_pb2.NameAttrList(name=self.concrete.name)
        types = [tensor.dtype for tensor in self.concrete.graph.outputs]
        outputs = gen_functional_ops.stateful_partitioned_call(args=outer, Tout=types, f=name)
        operation = outputs[0].op if types else outputs
        operation._set_attr("_XlaMustCompile", attr_value_pb2.AttrValue(b=True))
        return (list(outputs) if types else []), [operation]

    def _distinct(self, outputs: list[Any], outer: list[Any]) -> list[Any]:
        """The outputs, each another tensor, and none that is fed: a session refuses both."""
        taken = {id(tensor) for tensor in outer}
        distinct = []
        for tensor in outputs:
            fetch = array_ops.identity(tensor) if id(tensor) in taken else tensor
            taken.add(id(tensor))
            distinct.append(fetch)
        return distinct

    def _flatten(self, arguments: list[Any]) -> None:
        """Takes the functions apart that the graph calls: what they cost, change and may fail in is then seen."""
        operations = self.graph.get_operations()
        types = {operation.type for operation in operations} | types_in_functions(self.graph)
        if types.isdisjoint(PLAIN_CALLS) or self.is_compiled_by_xla or not types.isdisjoint(FUNCTIONAL_CONTROL_FLOW):
            return
        if not runs_on_first_cpu(operations, self._config):
            return
        kept = [element.name for element in (*self.feeds, *self.fetches)]
        names = [tensor.op.name for tensor in arguments if tensor.dtype not in _OPAQUE]
        try:
            self.graph = flattened(self.graph, kept, names)
        except (errors_impl.OpError, ValueError):
            return  # The graph as it is does the same.
        self.feeds, self.outputs, self.targets = (
            [self.graph.as_graph_element(element.name) for element in elements]
            for elements in (self.feeds, self.outputs, self.targets)
        )

    def finalize(self) -> None:
        """Finalizes the graph, if it isn't final."""
        if not self._is_fed_by_name and not self.graph.finalized:
            for place, feed in enumerate(self.feeds):
                _replace(feed, self._read(place, feed))
        self.graph.finalize()

    def _read(self, place: int, feed: Any) -> Any:
        """Reads an argument as a function does: by its position among what a call is given."""
        attributes = {
            "T": attr_value_pb2.AttrValue(type=feed.dtype.as_datatype_enum),
            "index": attr_value_pb2.AttrValue(i=place),
            **self._shapes_of_feeds[place],
        }
        name = feed.op.name.removeprefix(_FEED)
        return self.graph._create_op_internal("_Arg", [], [feed.dtype], name=name, attrs=attributes).outputs[0]

    @property
    def fetches(self) -> list[Any]:
        """The tensors and operations that a step computes."""
        return [*self.outputs, *self.targets]

    def session_config(self, single_threaded: bool) -> Any:
        """The ConfigProto of a session for the graph.

        Args:
          single_threaded: whether the session has the single-threaded executor.

        Returns:
          A ConfigProto under which the graph is optimized as TensorFlow optimizes the function.
        """
        config = config_pb2.ConfigProto()
        config.CopyFrom(self._config)
        if self.is_compiled_by_xla:
            config.graph_options.rewrite_options.disable_meta_optimizer = True
        if single_threaded:
            config.experimental.executor_type = SINGLE_THREADED
        return config

    def compile(self, executor: str) -> EagerCallable:
        """Makes a callable of the graph. The first one for an executor compiles nothing yet.

        Args:
          executor: "thread_pool", "inline" or "single_threaded".

        Returns:
          An EagerCallable whose inputs are the function's flat arguments, without resources and variants.

        Raises:
          tf.errors.OpError: the runtime refuses the graph.
        """
        single = executor == "single_threaded"
        self.executor = executor
        with uninterrupted:
            session = self._session(single)
            options = config_pb2.CallableOptions()
            options.feed.extend(tensor.name for tensor in self.feeds)
            options.fetch.extend(tensor.name for tensor in self.outputs)
            options.target.extend(operation.name for operation in self.targets)
            if executor == "inline":
                options.run_options.inter_op_thread_pool = CALLING_THREAD
            session.session._extend_graph()
            owner = _Callable(session.session, options)
            return session.callable(owner, owner._handle, len(self.feeds), len(self.outputs))

    def _session(self, single_threaded: bool) -> EagerSession:
        session = self._sessions.get(single_threaded)
        if session is None:
            config = self.session_config(single_threaded)
            session = self._sessions[single_threaded] = EagerSession(lambda: SharedSession(self.graph, config))
        return session

    def with_operation(self, error: Any, inputs: Sequence[Any]) -> Any:
        """The error of a failed call with the name of the operation, which the single-threaded executor leaves out.

        Args:
          error: a `tf.errors.OpError`.
          inputs: the tensors that the function's flat arguments were, with resources and variants.
        """
        if self.executor != "single_threaded":
            return error
        searched = self if isinstance(error, errors_impl.OutOfRangeError) else self._searchable_graph()
        session = searched._session(single_threaded=True).session
        arrays = [value.numpy() for value in inputs if value.dtype not in _OPAQUE]
        feeds = dict(zip(searched.feeds, arrays, strict=True))
        # Nothing is run again to find out which dataset has ended.
        compile_ = _compile_nothing if searched is self else session._make_callable_from_options
        return self._error_sources.named(error, searched.fetches, feeds, compile_)

    def _searchable_graph(self) -> LiftedGraph:
        """The same graph as it was made: in this one, what could be run again may wait for what has an effect."""
        if self._searchable is None:
            self._searchable = LiftedGraph(self.concrete, is_fed_by_name=True)
            self._searchable.finalize()
        return self._searchable

    def forget_sessions(self) -> None:
        """Lets callables that are compiled from now on begin with new kernels, whose state is that of the beginning.

        A session lives as long as one of its callables.
        """
        self._sessions = {}

    def leave_open(self) -> None:
        """Lets the sessions live as long as the process."""
        for session in self._sessions.values():
            session.session.left_open = True
        if self._searchable is not None:
            self._searchable.leave_open()

    def empty_boxes(self) -> None:
        """Lets the tensors in the boxes go. The graph can't be run any more."""
        for box in self.captured + [box for _, box in self.opaque_inputs]:
            box.empty()
        if self._searchable is not None:
            self._searchable.empty_boxes()


def names_of_handle(handle: Any) -> tuple[str, str] | None:
    """The shared name and the container by which any graph finds an eager variable.

    Args:
      handle: the variable's handle.

    Returns:
      The two names; None if TensorFlow doesn't tell them.
    """
    found = _HANDLE.search(str(handle))
    return None if found is None else (found[1], found[3])


def _compile_nothing(options: Any) -> Any:
    raise NotImplementedError


def _replace(tensor: Any, other: Any) -> None:
    """Puts a tensor in the place of another one, and its operation where others wait for that of the other one."""
    for operation in tensor.consumers():
        for place, taken in enumerate(operation.inputs):
            if taken is tensor:
                operation._update_input(place, other)
    for operation in tensor.op._control_outputs:
        waits = [other.op if wait is tensor.op else wait for wait in operation.control_inputs]
        operation._remove_all_control_inputs()
        operation._add_control_inputs(waits)


def _remove_nodes(graph_def: Any, names: set[str]) -> None:
    """Removes nodes from a GraphDef. Others that were to be on the same device as them may then be anywhere."""
    places = {f"loc:@{name}".encode() for name in names}
    nodes = [node for node in graph_def.node if node.name not in names]
    for node in nodes:
        if "_class" in node.attr:
            kept = [place for place in node.attr["_class"].list.s if place not in places]
            node.attr["_class"].list.s[:] = kept
    del graph_def.node[:]
    graph_def.node.extend(nodes)


def _keeps_random_sequences(definition: Any) -> bool:
    """Whether an operation draws from a sequence that has a seed, and keeps its place in it."""
    return any("seed2" in node.attr and (node.attr["seed"].i or node.attr["seed2"].i) for node in definition.node_def)


def _is_compiled(definition: Any) -> bool:
    return bool(definition.attr["_XlaMustCompile"].b) if "_XlaMustCompile" in definition.attr else False


def _check(concrete: Any) -> None:
    """Raises NotLiftable where lifting would change what the function does."""
    inner = concrete.graph
    if getattr(inner, "deferred_external_captures", ()) or any(callable(value) for value in concrete._captured_inputs):
        raise NotLiftable("it captures values that are computed anew in each call")
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
