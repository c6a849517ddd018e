"""Functions as XLA's compiler for the CPU is to get them: the same results, and not many times slower than need be.

Random numbers of `tf.random.stateless_*`, and so those of Keras, begin with a key that is computed from the seed
(`StatelessRandomGetKeyCounter`). XLA's compiler for the CPU puts that into the loop over the numbers, and computes the
key again for each of them: 16,384 numbers took 11 ms in place of 0.4 (TensorFlow 2.21). An optimization barrier behind
the key keeps it out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tensorflow.compiler.tf2xla.ops import gen_xla_ops  # noqa: F401  Registers the barrier.
from tensorflow.core.framework import graph_pb2, types_pb2
from tensorflow.python.framework import importer

__all__ = ["add_functions"]

_KEY = "StatelessRandomGetKeyCounter"
_OUTPUTS = ("key", "counter")


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
    """Puts a barrier behind each key of a FunctionDef."""
    replaced = {}
    for node in list(definition.node_def):
        if node.op != _KEY:
            continue
        barrier = definition.node_def.add(name=f"{node.name}/fastsup_barrier", op="XlaOptimizationBarrier")
        barrier.attr["T"].list.type.extend([types_pb2.DT_UINT64, types_pb2.DT_UINT64])
        barrier.device = node.device
        barrier.input.extend(f"{node.name}:{output}:0" for output in _OUTPUTS)
        replaced.update({source: f"{barrier.name}:output:{place}" for place, source in enumerate(barrier.input)})
    for node in definition.node_def:
        if node.op != "XlaOptimizationBarrier" or not node.name.endswith("/fastsup_barrier"):
            for place, source in enumerate(node.input):
                node.input[place] = replaced.get(source, source)
    for name, source in definition.ret.items():
        definition.ret[name] = replaced.get(source, source)
