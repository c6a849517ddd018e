"""Determines which values of variables a snapshot can share with the runtime, and which it must copy.

A resource variable is copied on write: readers keep the buffer, and the next operation that writes it allocates a new
one. A snapshot can therefore be the variable's buffer. This is correct and free for a variable that is written only by
assignments. There are four exceptions:

- An operation that adds to a variable, as optimizers do, must first copy the variable into new memory if its buffer is
  kept. That takes several times as long as a copy into used memory, and the step waits for it.
- A reference variable is written in place.
- An operation that isn't TensorFlow's may write in place.
- Operations on rows (a gather, a scatter, a sparse optimizer) make the variable be copied when it is read instead of
when
  it is written. `DisableCopyOnRead` reverses that until the next such operation, which copies the whole variable if one
  of its values is still kept. A snapshot of the variable is therefore read without a copy, copied, and released: one
  copy, into used memory. A read that copies takes ten times as long, because it copies into new memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tensorflow.python.framework import dtypes, ops
from tensorflow.python.ops import gen_resource_variable_ops

from fastsup.runtime.graph.effects import PASSES_ON
from fastsup.runtime.graph.global_step import resource_identity
from fastsup.runtime.graph.operations import FUNCTION_CALLS, called_functions, function_defs, named_functions

__all__ = ["Snapshot", "add_reads_without_copy", "snapshot_of"]

_HANDLE = "VarHandleOp"
# Operations that pass the value of a variable on unchanged.
_SAME_VALUE = frozenset({"Identity"})
# Prefixes of operations that change an existing value.
_UPDATES = ("AssignAdd", "AssignSub", "ResourceApply", "ResourceCountUpTo", "StatefulUniform", "RngSkip")
# Prefixes of operations on rows.
_ROWS = ("ResourceGather", "ResourceScatter", "ResourceSparseApply", "ResourceStridedSliceAssign")
_READS_WITHOUT_COPY = "DisableCopyOnRead"

Identity = tuple[bytes, bytes]


class Snapshot(NamedTuple):
    """How the values of tensors are kept at one moment.

    Args:
      shared: for each tensor, whether the value can share the runtime's memory.
      before: operations to run before the tensors are computed. With them, values that are copied afterwards are read
        without a copy by the runtime.
    """

    shared: list[bool]
    before: list[ops.Operation]


def snapshot_of(graph: ops.Graph, tensors: Iterable[Any], is_remote: bool = False) -> Snapshot:
    """Determines how the values of tensors are kept.

    Args:
      graph: the graph; any of its operations may run while the values are kept.
      tensors: the tensors that a Saver writes.
      is_remote: Whether other processes may run steps on the variables at any time.

    Returns:
      A `Snapshot`.
    """
    handles = [_variable_read_by(tensor) for tensor in tensors]
    uses = _uses(graph, {resource_identity(handle) for handle in handles if handle is not None})
    before = [use.read_without_copy for use in uses.values() if use.has_rows and use.read_without_copy]
    if is_remote:
        # On a remote engine, operations on rows would copy a value that is read without a copy.
        before = []
    of_tensors = [None if handle is None else uses[resource_identity(handle)] for handle in handles]
    return Snapshot([use is not None and use.is_shared(is_remote) for use in of_tensors], before)


def add_reads_without_copy(graph: ops.Graph) -> None:
    """Adds the operations that `Snapshot.before` needs, for variables with operations on rows.

    Args:
      graph: the graph, with all of these operations. Nothing is added to a finalized graph, and snapshots then cost
        more.
    """
    if graph.finalized:
        return
    variables = {resource_identity(op): op for op in graph.get_operations() if op.type == _HANDLE}
    for identity, use in _uses(graph, set(variables)).items():
        if use.has_rows and use.read_without_copy is None:
            handle = variables[identity]
            with graph.as_default(), ops.control_dependencies(None), ops.colocate_with(handle):
                gen_resource_variable_ops.disable_copy_on_read(
                    handle.outputs[0], name=f"{handle.name}/{_READS_WITHOUT_COPY}"
                )


class _Use:
    """The use of one variable by the operations of a graph."""

    def __init__(self) -> None:
        self.has_rows = False
        self.is_copied_on_write = False
        self.is_foreign = False
        self.read_without_copy: ops.Operation | None = None

    def is_shared(self, is_remote: bool) -> bool:
        """Returns True if a read value is kept unchanged. If the read has made a copy, the copy is kept."""
        if self.has_rows:
            return not self.is_foreign and not is_remote and self.read_without_copy is None
        return not self.is_foreign and not self.is_copied_on_write

    def note(self, op_type: str) -> None:
        if op_type.startswith(_ROWS):
            self.has_rows = True
        elif op_type.startswith(_UPDATES):
            self.is_copied_on_write = True
        elif not (op_type in PASSES_ON or op_type in FUNCTION_CALLS or _is_tensorflows(op_type)):
            self.is_foreign = True


def _is_tensorflows(op_type: str) -> bool:
    """Returns True for TensorFlow's operations. Other libraries' may write in place while others still read."""
    from tensorflow import raw_ops

    return hasattr(raw_ops, op_type)


def _variable_read_by(tensor: Any) -> ops.Operation | None:
    """Returns the handle of the resource variable that a tensor has the value of, or None for other tensors."""
    op = tensor.op
    while op.type in _SAME_VALUE and op.inputs:
        op = op.inputs[0].op
    if op.type != "ReadVariableOp":
        return None
    handle = op.inputs[0].op
    while handle.type in _SAME_VALUE and handle.inputs:
        handle = handle.inputs[0].op
    return handle if handle.type == _HANDLE else None


def _uses(graph: ops.Graph, wanted: set[Identity]) -> Mapping[Identity, _Use]:
    uses = {identity: _Use() for identity in wanted}
    if not uses:
        return uses
    functions = {function.signature.name: function for function in function_defs(graph)}
    for handle in graph.get_operations():
        if handle.type != _HANDLE:
            continue
        use = uses.get(resource_identity(handle))
        if use is None:
            continue
        for op in _users(handle):
            use.note(op.type)
            if op.type == _READS_WITHOUT_COPY:
                use.read_without_copy = op
            # A function that gets the handle may do anything with it.
            for op_type in _types_in(called_functions(graph, op.node_def), functions):
                use.note(op_type)
    # A function may create its own handle of a variable.
    for function in functions.values():
        for node in function.node_def:
            if node.op == _HANDLE:
                name = (node.attr["container"].s, node.attr["shared_name"].s or node.name.encode())
                if name in uses:
                    uses[name].has_rows = True
    return uses


def _users(handle: ops.Operation) -> Iterator[ops.Operation]:
    """Yields the operations that take a handle, also under another name."""
    seen: set[ops.Operation] = set()
    waiting = [handle]
    while waiting:
        for output in waiting.pop().outputs:
            if output.dtype != dtypes.resource:
                continue
            for op in output.consumers():
                if op in seen:
                    continue
                seen.add(op)
                yield op
                if op.type in PASSES_ON:
                    waiting.append(op)


def _types_in(names: Iterable[str], functions: Mapping[str, Any]) -> set[str]:
    """Returns the types of operations with inputs in functions, including the functions that these call."""
    types: set[str] = set()
    waiting, seen = list(names), set(names)
    while waiting:
        function = functions.get(waiting.pop())
        if function is None:
            types.add("a function that isn't known")
            continue
        for node in function.node_def:
            called = named_functions(node)
            if node.op in functions:
                called.add(node.op)
            elif node.input:
                types.add(node.op)
            waiting.extend(called - seen)
            seen |= called
    return types
