"""Functions as XLA's compiler for the CPU is to get them: the same results, and not many times slower than need be.

Random numbers of `tf.random.stateless_*`, and so those of Keras, begin with a key that is computed from the seed
(`StatelessRandomGetKeyCounter`). XLA's compiler for the CPU puts that into the loop over the numbers, and computes the
key again for each of them: 16,384 numbers took 11 ms in place of 0.4 (TensorFlow 2.21). An optimization barrier after
the key keeps it out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tensorflow.core.framework import graph_pb2, types_pb2
from tensorflow.python.framework import importer

__all__ = ["add_functions"]

_KEY = "StatelessRandomGetKeyCounter"
_OUTPUTS = ("key", "counter")
# What follows the name of a key in that of its barrier.
_BARRIER = "/fastsup_barrier"


def add_functions(concrete: Any, definitions: Iterable[Any], graph: Any) -> str:
    """Adds a function that XLA compiles as a whole to a graph, and all that it calls.

    Args:
      concrete: the ConcreteFunction.
      definitions: its FunctionDef, and those of what it calls.
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
    # TensorFlow keeps one function of a name.
    names = {definition.signature.name: f"{definition.signature.name}_for_xla" for definition in definitions}
    for definition in library.library.function:
        _put_barriers(definition)
        _rename(definition, names)
    importer.import_graph_def(library, name="")
    return names[concrete.function_def.signature.name]


def _rename(definition: Any, names: dict[str, str]) -> None:
    """Gives a FunctionDef, and the functions that it calls, other names."""
    definition.signature.name = names[definition.signature.name]
    for node in definition.node_def:
        node.op = names.get(node.op, node.op)
        for value in node.attr.values():
            called = value.list.func if value.HasField("list") else [value.func] if value.HasField("func") else []
            for function in called:
                function.name = names.get(function.name, function.name)


def _put_barriers(definition: Any) -> None:
    """Puts a barrier after each key of a FunctionDef."""
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
