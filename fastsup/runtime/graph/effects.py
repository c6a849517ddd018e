"""Which operations only compute and read, and which have an effect: on a variable, an iterator, a random sequence."""

from __future__ import annotations

from tensorflow.python.framework import op_def_registry, ops

from fastsup.runtime.graph.operations import FUNCTION_CALLS, nodes_of_functions

# Operations with state that can be evaluated again: they only look at it.
_READS = frozenset(
    {
        "VarHandleOp", "ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp", "VariableShape",
        "HashTableV2", "LookupTableFindV2", "LookupTableSizeV2", "Assert", "CheckNumerics", "CheckNumericsV2",
        "IteratorV2", "OneShotIterator", "ReadFile", "MatchingFiles", "Placeholder", "PlaceholderWithDefault",
        "_Arg",
    }
)  # fmt: skip
# These call the program's own functions, which may do anything.
_CALLS_PROGRAM = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})


def has_effect(op: ops.Operation) -> bool:
    """Whether an operation changes something that lasts longer than the run, or is seen outside of it."""
    return not is_pure(op)


def is_pure(op: ops.Operation) -> bool:
    """Whether an operation may be run once more, on its own, without an effect."""
    if op.type in FUNCTION_CALLS:
        return all(_is_pure_type(node.op) for node in nodes_of_functions(op))
    return _is_pure_type(op.type)


def _is_pure_type(op_type: str) -> bool:
    if op_type in _READS or op_type in FUNCTION_CALLS:
        return True
    definition = op_def_registry.get(op_type)
    return definition is not None and not definition.is_stateful and op_type not in _CALLS_PROGRAM
