"""Finds the operations that a tensor depends on, and operations that call functions of the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tensorflow.python.framework import ops

CONDITIONALS = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
FUNCTIONAL_CONTROL_FLOW = CONDITIONALS | {"While", "StatelessWhile", "For"}
PLAIN_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
# Operations that run functions of the graph.
FUNCTION_CALLS = FUNCTIONAL_CONTROL_FLOW | PLAIN_CALLS | {"RemoteCall", "SymbolicGradient"}

_STATEFUL_CALLS = FUNCTION_CALLS - {"StatelessIf", "StatelessCase", "StatelessWhile", "PartitionedCall"}


def function_defs(graph: ops.Graph) -> list[Any]:
    """Returns a graph's functions as FunctionDefs. Reads its list, because serializing a large graph is slow."""
    return [function.cached_definition for function in graph._functions.values()]


def types_in_functions(graph: ops.Graph) -> set[str]:
    """Returns the types of the operations in a graph's functions."""
    return {node.op for definition in function_defs(graph) for node in definition.node_def}


def named_functions(node: Any) -> set[str]:
    """Returns the names of the functions that a NodeDef names."""
    named = {value.func.name for value in node.attr.values() if value.HasField("func")}
    return named | {function.name for value in node.attr.values() for function in value.list.func}


def called_functions(graph: ops.Graph, node: Any) -> set[str]:
    """Returns the names of the graph's own functions that a NodeDef names."""
    return {name for name in named_functions(node) if name in graph._functions}


def nodes_of_functions(op: ops.Operation) -> Iterable[Any]:
    """Yields the nodes of all functions that an operation calls, directly or indirectly."""
    waiting, seen = [op.node_def], set[str]()
    while waiting:
        node = waiting.pop()
        for name in called_functions(op.graph, node) - seen:
            seen.add(name)
            nodes = op.graph._functions[name].cached_definition.node_def
            yield from nodes
            waiting.extend(node for node in nodes if node.op in FUNCTION_CALLS)


def calls_type(op: ops.Operation, is_wanted: Callable[[str], bool]) -> bool:
    """Returns True if an operation calls a function with an operation of a wanted type.

    Args:
      op: the operation.
      is_wanted: function that returns True for a wanted type.
    """
    return op.type in FUNCTION_CALLS and any(is_wanted(node.op) for node in nodes_of_functions(op))


def sources_of(op: ops.Operation) -> list[ops.Operation]:
    """Returns the operations of an operation's inputs and control inputs."""
    return [*(tensor.op for tensor in op.inputs), *op.control_inputs]


def upstream_operations(elements: Iterable[Any], feeds: Iterable[Any] = ()) -> set[ops.Operation]:
    """Returns every operation that may run to compute these tensors and operations.

    Args:
      elements: the tensors and operations.
      feeds: fed tensors. Operations that only they need don't run.
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


def outlive_callables(operations: Iterable[ops.Operation]) -> bool:
    """Returns True if kernels of these operations refer to a callable that has run them, even after it is released.

    The runtime keeps the kernels of stateful operations as long as the session exists. Kernels that call functions
    identify them by the address of the callable's function library. After a callable is released, another one with
    other functions may get its address. Measured with TensorFlow 2.21, `If` and `While` then fail in the
    single-threaded executor, or run another function. Functions that a function calls may be inlined, so they count as
    well.
    """
    return any(
        op.type in _STATEFUL_CALLS or calls_type(op, _STATEFUL_CALLS.__contains__)
        for op in operations
        if op.type in FUNCTION_CALLS
    )
