"""What a call of a function may write, and what it adds to a variable whose handle it is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorflow.python.framework import op_def_registry, tensor_util

from fastsup.runtime.graph.operations import FUNCTION_CALLS, PLAIN_CALLS, named_functions

__all__ = ["CONTROL_FLOW", "PASSES_ON", "READS", "UNKNOWN", "added_by_call", "function_writes"]

UNKNOWN = -1

# Operations that take a resource variable's handle and only read through it.
READS = frozenset(
    {"ReadVariableOp", "_ReadVariablesOp", "VarIsInitializedOp", "VariableShape", "ResourceGather", "ResourceGatherNd",
     "IsVariableInitialized", "IsResourceInitialized", "DisableCopyOnRead"}
)  # fmt: skip
# Operations that hand a handle or reference on under another name.
PASSES_ON = frozenset(
    {"Identity", "IdentityN", "RefIdentity", "Switch", "RefSwitch", "Merge", "RefMerge", "Enter", "RefEnter", "Exit",
     "RefExit", "NextIteration", "RefNextIteration"}
)  # fmt: skip
# Low-level control flow, under which an operation can be skipped because something that it waits for was.
CONTROL_FLOW = frozenset({"Switch", "RefSwitch", "Merge", "RefMerge", "Enter", "RefEnter", "Exit", "RefExit",
                          "NextIteration", "RefNextIteration", "LoopCond"})  # fmt: skip


def function_writes(name: str, find: Callable[[str], Any], seen: set[str]) -> bool:
    """Whether a function, or one that it calls, may write something.

    Args:
      name: the function's name.
      find: gives the definition of a function, or None if no function has that name.
      seen: names of functions that needn't be looked at; those that are looked at are added.
    """
    if name in seen:
        return False
    seen.add(name)
    function = find(name)
    if function is None:
        return True
    for node in function.node_def:
        if node.op in READS or node.op in PASSES_ON:
            continue
        if node.op in FUNCTION_CALLS:
            if any(function_writes(called, find, seen) for called in named_functions(node)):
                return True
            continue
        definition = op_def_registry.get(node.op)
        if definition is None and find(node.op) is not None:
            if function_writes(node.op, find, seen):
                return True
        elif definition is None or definition.is_stateful:
            return True
    return False


def added_by_call(node: Any, places: list[int], find: Callable[[str], Any]) -> int:
    """What a call adds to a variable, each time it is made.

    Args:
      node: the NodeDef of the call.
      places: the positions of the variable's handle among the arguments of the call.
      find: as for `function_writes`.

    Returns:
      The number; 0 if the function only reads the variable; UNKNOWN if it isn't one constant that is always added.
    """
    names = list(named_functions(node))
    function = find(names[0]) if node.op in PLAIN_CALLS and len(names) == 1 else None
    if function is None or len(places) != 1:
        return UNKNOWN
    handle = function.signature.input_arg[places[0]].name
    nodes = {inner.name: inner for inner in function.node_def}
    if handle in map(_node_of, function.ret.values()) or any(inner.op in CONTROL_FLOW for inner in function.node_def):
        return UNKNOWN
    runs_always = _needed_for(nodes, [*function.ret.values(), *function.control_ret.values()])
    added = 0
    for inner in function.node_def:
        taken = [place for place, source in enumerate(inner.input) if source == handle]
        if not taken or inner.op in READS:
            continue
        if inner.name not in runs_always:
            return UNKNOWN
        by_this = UNKNOWN
        if inner.op == "AssignAddVariableOp":
            by_this = _constant(nodes, inner.input[1])
        elif inner.op in PLAIN_CALLS:
            by_this = added_by_call(inner, taken, find)
        if by_this == UNKNOWN:
            return UNKNOWN
        added += by_this
    return added


def _node_of(source: str) -> str:
    """The name of the node, or of the argument, that an input of a function's node comes from."""
    return source.lstrip("^").split(":")[0]


def _needed_for(nodes: dict[str, Any], sources: list[str]) -> set[str]:
    """The names of the nodes of a function without which the sources aren't there."""
    needed: set[str] = set()
    waiting = list(map(_node_of, sources))
    while waiting:
        name = waiting.pop()
        if name in nodes and name not in needed:
            needed.add(name)
            waiting.extend(map(_node_of, nodes[name].input))
    return needed


def _constant(nodes: dict[str, Any], source: str) -> int:
    """The non-negative constant that an input of a function's node is, cast or not, or UNKNOWN."""
    node = nodes.get(_node_of(source))
    while node is not None and node.op in ("Cast", "Identity"):
        node = nodes.get(_node_of(node.input[0]))
    if node is None or node.op != "Const":
        return UNKNOWN
    value = tensor_util.MakeNdarray(node.attr["value"].tensor)
    return int(value) if value.shape == () and value >= 0 and value == int(value) else UNKNOWN
