"""What a run does to the variables of its graph: reads them, writes them, or saves them or copies of them."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from functools import partial
from typing import Any

from tensorflow.python.framework import dtypes, ops

from fastsup.runtime.graph.function_effects import PASSES_ON, READS, function_writes
from fastsup.runtime.graph.global_step import takes_reference
from fastsup.runtime.graph.operations import FUNCTION_CALLS, named_functions

_SAVES = frozenset({"SaveV2", "Save", "SaveSlices"})
_VARIABLES = frozenset({"VarHandleOp", "VariableV2", "Variable"})
_TABLE_WRITERS = ("LookupTableInsert", "LookupTableImport", "LookupTableRemove")
# They wait for what other processes, or the very thread that saves, will do: nothing may wait for them.
_WAITS_FOR_OTHERS = ("AccumulatorTakeGradient", "SparseAccumulatorTakeGradient", "ResourceAccumulatorTakeGradient")


class VariableAccess(enum.IntEnum):
    """What a run does to variables."""

    READS = 0
    WRITES = 1
    # A checkpoint of variables: all of them between two steps.
    SAVES = 2
    # A checkpoint of values that are fed.
    SAVES_COPIES = 3


def access_of(operations: Iterable[ops.Operation]) -> VariableAccess:
    """What running these operations does to variables."""
    types = {op.type for op in operations}
    if types & _SAVES:
        return VariableAccess.SAVES if types & _VARIABLES else VariableAccess.SAVES_COPIES
    if any(kind.startswith(_WAITS_FOR_OTHERS) for kind in types):
        return VariableAccess.READS
    return VariableAccess.WRITES if any(writes_variable(op) for op in operations) else VariableAccess.READS


def writes_variable(op: ops.Operation) -> bool:
    """Whether an operation changes a variable or a table."""
    if op.type in READS or op.type in PASSES_ON:
        return False
    if op.type.startswith(_TABLE_WRITERS):
        return True
    if op.type in FUNCTION_CALLS:
        # A conditional that reads the global step, for example.
        find = partial(_definition, op.graph)
        if not any(function_writes(name, find, set()) for name in named_functions(op.node_def)):
            return False
    for tensor in op.inputs:
        if tensor.dtype == dtypes.resource:
            if handle_source(tensor).type in _VARIABLES:
                return True
        elif tensor.dtype._is_ref_dtype and takes_reference(op, tensor):
            return True
    return False


def _definition(graph: Any, name: str) -> Any:
    function = graph._get_function(name)
    return getattr(function, "cached_definition", None) or getattr(function, "definition", None)


def handle_source(tensor: Any) -> ops.Operation:
    """The operation that a handle comes from."""
    op: ops.Operation = tensor.op
    seen = set()
    while op.type in PASSES_ON and op.inputs and op not in seen:
        seen.add(op)
        op = op.inputs[0].op
    return op
