"""Rewrites function definitions before they run: flattens calls into the graph, and adds barriers for XLA."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from tensorflow.core.framework import graph_pb2, types_pb2
from tensorflow.core.protobuf import config_pb2, device_properties_pb2, meta_graph_pb2
from tensorflow.python.framework import importer, op_def_registry, ops
from tensorflow.python.grappler import cluster, tf_optimizer

from fastsup.runtime.graph.operations import PLAIN_CALLS

# Names of the operations that TensorFlow adds before the body of a function.
_IS_ARGUMENT = re.compile(r"Func/.*/input/_\d+$")
_IS_WAIT = re.compile(r"Func/.*/input_control_node/_\d+$")


def flattened(graph: ops.Graph, kept: Iterable[str], arguments: Iterable[str]) -> ops.Graph:
    """Returns the graph without function calls, as far as TensorFlow's optimizer inlines functions.

    Args:
      graph: a graph that is completely on the first CPU device.
      kept: names of the tensors and operations that keep their names. Operations that none of these needs may be
        dropped.
      arguments: names of the graph's argument operations, without resources and variants.

    Returns:
      A new graph.

    Raises:
      tf.errors.OpError: If the optimizer refuses the graph.
      ValueError: If the optimizer doesn't return a graph.
    """
    graph_def = graph.as_graph_def()
    meta_graph = meta_graph_pb2.MetaGraphDef(graph_def=graph_def)
    for nodes in (meta_graph.graph_def.node, *(body.node_def for body in meta_graph.graph_def.library.function)):
        _set_waits_apart(nodes)
    meta_graph.collection_def["train_op"].node_list.value.extend(kept)
    config = config_pb2.ConfigProto()
    rewrites = config.graph_options.rewrite_options
    rewrites.optimizers.append("function")
    rewrites.min_graph_nodes = -1  # Rewrite even the smallest graph.
    # Describe the CPU here. Otherwise, the optimizer would open this machine's devices again to read their properties.
    cpu = device_properties_pb2.NamedDevice(name="/job:localhost/replica:0/task:0/device:CPU:0")
    cpu.properties.type = "CPU"
    optimized = tf_optimizer.OptimizeGraph(config, meta_graph, verbose=False, cluster=cluster.Cluster(devices=[cpu]))
    _release_effects(optimized)
    _pass_arguments_by(optimized, set(arguments))
    # The session shares the eager context's functions, so the remaining ones, and the functions that they call, must
    # not change.
    library = graph_def.library
    names = {body.signature.name for body in library.function}
    library.function.extend(body for body in optimized.library.function if body.signature.name not in names)
    optimized.library.CopyFrom(library)
    result = ops.Graph()
    with result.as_default():
        importer.import_graph_def(optimized, name="")
    return result


def _set_waits_apart(nodes: Any) -> None:
    """If a call waits for an operation whose result it also uses, makes it wait for an operation in between.

    The program, or the order of its effects, requires such a wait. `_release_effects` must not drop it.
    """
    for node in [node for node in nodes if node.op in PLAIN_CALLS]:
        sources = {"^" + name.split(":")[0] for name in node.input}
        for place, name in enumerate(node.input):
            if name in sources:
                between = nodes.add(op="NoOp", name=f"{node.name}/after/{name[1:]}", input=[name])
                node.input[place] = "^" + between.name


def _release_effects(graph_def: Any) -> None:
    """Removes unnecessary waits of a function's operations for arguments that they don't use.

    The optimizer makes all of them wait for all arguments. When TensorFlow runs a function that calls functions, these
    waits are lost.
    """
    sources: dict[str, set[str]] = {}
    for node in graph_def.node:
        if node.op == "Identity" and _IS_ARGUMENT.match(node.name):
            for wait in node.input[1:]:
                sources.setdefault(wait, set()).add("^" + node.input[0].split(":")[0])
    for node in graph_def.node:
        of_arguments = sources.get("^" + node.name)
        if of_arguments and _IS_WAIT.match(node.name):
            kept = [name for name in node.input if name not in of_arguments]
            del node.input[:]
            node.input.extend(kept)


def _pass_arguments_by(graph_def: Any, arguments: set[str]) -> None:
    """Makes a function's operations use the graph's arguments directly instead of copies.

    TensorFlow's optimizer orders sums by the names of their terms, and a copy has another name. Operations that wait
    for the copies because they have an effect then wait for the copies' predecessors.
    """
    copied: dict[str, tuple[str, list[str]]] = {}
    for node in graph_def.node:
        if node.op == "Identity" and _IS_ARGUMENT.match(node.name):
            copied[node.name] = node.input[0].removesuffix(":0"), list(node.input[1:])

    def source_of(name: str) -> tuple[str, list[str]]:
        waits: list[str] = []
        while name in copied:
            name, more = copied[name]
            waits += more
        return name, waits

    for node in graph_def.node:
        added: dict[str, None] = {}
        for place, name in enumerate(node.input):
            source, waits = source_of(name.removesuffix(":0"))
            if waits and source in arguments:
                node.input[place] = source
                added.update(dict.fromkeys(waits))
        if _is_stateful(node.op):
            node.input.extend(wait for wait in added if wait not in node.input)


def _is_stateful(op_type: str) -> bool:
    definition = op_def_registry.get(op_type)
    return definition is None or definition.is_stateful


# Random numbers of `tf.random.stateless_*`, and therefore Keras's, start with a key that is computed from the seed
# (`StatelessRandomGetKeyCounter`). XLA's CPU compiler moves this into the loop over the numbers, and recomputes the key
# for each number: 16,384 numbers took 11 ms instead of 0.4 (TensorFlow 2.21). An optimization barrier after the key
# prevents this.

_KEY = "StatelessRandomGetKeyCounter"
_OUTPUTS = ("key", "counter")
# The suffix of a barrier's name after the key's name.
_BARRIER = "/fastsup_barrier"


def add_functions(concrete: Any, definitions: Iterable[Any], graph: Any) -> str:
    """Adds a function that XLA compiles as a whole, and all functions that it calls, to a graph.

    Args:
      concrete: the ConcreteFunction.
      definitions: its FunctionDef and those of the functions that it calls.
      graph: the `tf.Graph`, which is the default graph.

    Returns:
      The name of the function in the graph.
    """
    definitions = list(definitions)
    if not any(node.op == _KEY for definition in definitions for node in definition.node_def):
        concrete.add_to_graph(graph)
        return str(concrete.function_def.signature.name)
    library = graph_pb2.GraphDef()
    library.versions.CopyFrom(graph.as_graph_def().versions)
    library.library.function.extend(definitions)
    # TensorFlow keeps one function per name.
    names = {definition.signature.name: f"{definition.signature.name}_for_xla" for definition in definitions}
    for definition in library.library.function:
        _put_barriers(definition)
        _rename(definition, names)
    importer.import_graph_def(library, name="")
    return names[concrete.function_def.signature.name]


def _rename(definition: Any, names: dict[str, str]) -> None:
    """Renames a FunctionDef and the functions that it calls."""
    definition.signature.name = names[definition.signature.name]
    for node in definition.node_def:
        node.op = names.get(node.op, node.op)
        for value in node.attr.values():
            called = value.list.func if value.HasField("list") else [value.func] if value.HasField("func") else []
            for function in called:
                function.name = names.get(function.name, function.name)


def _put_barriers(definition: Any) -> None:
    """Adds a barrier after each key of a FunctionDef."""
    keys = [(node.name, node.device) for node in definition.node_def if node.op == _KEY]
    replaced = {
        f"{name}:{output}:0": f"{name}{_BARRIER}:output:{place}"
        for name, _ in keys
        for place, output in enumerate(_OUTPUTS)
    }
    for node in definition.node_def:
        for place, source in enumerate(node.input):
            node.input[place] = replaced.get(source, source)
    for name, source in definition.ret.items():
        definition.ret[name] = replaced.get(source, source)
    for name, device in keys:
        barrier = definition.node_def.add(name=f"{name}{_BARRIER}", op="XlaOptimizationBarrier", device=device)
        barrier.attr["T"].list.type.extend([types_pb2.DT_UINT64, types_pb2.DT_UINT64])
        barrier.input.extend(f"{name}:{output}:0" for output in _OUTPUTS)
