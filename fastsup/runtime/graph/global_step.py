"""Determines a run's effect on the global step from the graph.

In a local session, a variable changes only by operations of the session's own graph. If every operation that can write
the global step is known, a run that reaches none of them doesn't change it, and a run that reaches one unconditional
AssignAdd of a constant adds that constant. The effect of any other run is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tensorflow.python.framework import dtypes, ops, tensor_util
from tensorflow.python.training import training_util

from fastsup.runtime.graph.effects import (
    CONTROL_FLOW,
    PASSES_ON,
    READS,
    UNKNOWN,
    added_by_call,
    function_writes,
    takes_reference,
)
from fastsup.runtime.graph.operations import FUNCTION_CALLS, function_defs, named_functions

_ADDS = frozenset({"AssignAdd", "AssignAddVariableOp"})
# Operations that write the variable whose handle or reference they take.
_DIRECT_WRITERS = ("Assign", "ResourceApply", "ResourceSparseApply", "ResourceScatter", "Apply", "SparseApply",
                   "Scatter", "CountUpTo", "ResourceCountUpTo", "DestroyResourceOp", "StridedSliceAssign",
                   "ResourceStridedSliceAssign", "DestroyTemporaryVariable")  # fmt: skip
_PLACEHOLDERS = frozenset({"Placeholder", "PlaceholderV2", "PlaceholderWithDefault"})


class GlobalStepWrites:
    """The operations of a finished graph that can write its global step.

    Args:
      graph: the graph. Operations added later are ignored.
      variable: the global step.
    """

    def __init__(self, graph: ops.Graph, variable: Any) -> None:
        self._graph = graph
        self._functions = {function.signature.name: function for function in function_defs(graph)}
        self._provable = True
        self._shared_name: bytes | None = None
        self._references: set[Any] = set()
        self._descendants: dict[ops.Operation, set[ops.Operation]] = {}
        for writer in self._find_writers(variable):
            self._descendants[writer] = _reached_from(writer)
        self._added = {writer: self._constant_added(writer) for writer in self._descendants}

    def delta_of(self, elements: Iterable[Any], fed_tensors: Iterable[Any]) -> int:
        """Returns the number that a run adds to the global step, 0 if it doesn't write the step, or UNKNOWN.

        Args:
          elements: the tensors and operations that the run computes.
          fed_tensors: the fed tensors.
        """
        if not self._provable:
            return UNKNOWN
        targets = [element if isinstance(element, ops.Operation) else element.op for element in elements]
        reached = [writer for writer, after in self._descendants.items() if any(target in after for target in targets)]
        if not reached:
            return 0
        # A feed in the middle of the graph may skip a writer, or change the writer's increment.
        if len(reached) > 1 or any(tensor.op.type not in _PLACEHOLDERS for tensor in fed_tensors):
            return UNKNOWN
        return self._added[reached[0]]

    def _find_writers(self, variable: Any) -> list[ops.Operation]:
        sources = self._names_of(variable)
        if sources is None or any(self._function_holds_variable(name) for name in self._functions):
            self._provable = False
            return []
        writers = []
        seen = self._references
        waiting = list(sources)
        while waiting:
            tensor = waiting.pop()
            if tensor.ref() in seen:
                continue
            seen.add(tensor.ref())
            for op in tensor.consumers():
                if op.type in PASSES_ON:
                    waiting.extend(out for out in op.outputs if out.dtype == dtypes.resource or out.dtype._is_ref_dtype)
                elif op.type in READS or not takes_reference(op, tensor):
                    pass
                elif op.type in FUNCTION_CALLS:
                    if any(function_writes(name, self._functions.get, set()) for name in named_functions(op.node_def)):
                        writers.append(op)
                elif op.type.startswith(_DIRECT_WRITERS):
                    writers.append(op)
                    waiting.extend(out for out in op.outputs if out.dtype._is_ref_dtype)
                else:
                    self._provable = False
        return writers

    def _names_of(self, variable: Any) -> list[Any] | None:
        """Returns all tensors of the graph that are the variable's handle or reference, or None."""
        op = variable.op
        if op.type in ("VariableV2", "Variable"):
            return list(op.outputs)
        if op.type != "VarHandleOp":
            return None
        identity = resource_identity(op)
        self._shared_name = identity[1]
        return [
            other.outputs[0]
            for other in self._graph.get_operations()
            if other.type == "VarHandleOp" and resource_identity(other) == identity
        ]

    def _function_holds_variable(self, name: str) -> bool:
        """Returns True if a function creates its own handle of the variable instead of taking one."""
        return any(
            node.op == "VarHandleOp" and (node.attr["shared_name"].s or node.name.encode()) == self._shared_name
            for node in self._functions[name].node_def
        )

    def _constant_added(self, op: ops.Operation) -> int:
        """Returns the non-negative constant that an operation adds whenever it is part of a run, or UNKNOWN."""
        context = op._get_control_flow_context()
        while context is not None and context.IsXLAContext():
            context = context.outer_context  # A call that XLA compiles has such a context, and always runs.
        if context is not None:
            return UNKNOWN
        if op.type in FUNCTION_CALLS:
            places = [place for place, tensor in enumerate(op.inputs) if tensor.ref() in self._references]
            added = added_by_call(op.node_def, places, self._functions.get)
        else:
            value = _constant(op.inputs[1].op) if op.type in _ADDS else None
            added = UNKNOWN if value is None or value.shape != () or value < 0 else int(value)
        if added == UNKNOWN:
            return UNKNOWN
        seen = set()
        waiting = [op]
        while waiting:
            current = waiting.pop()
            if current in seen:
                continue
            if current.type in CONTROL_FLOW:
                return UNKNOWN
            seen.add(current)
            waiting.extend(source.op for source in current.inputs)
            waiting.extend(current.control_inputs)
        return added


def track_global_step(session: Any) -> Any:
    """Makes a session count its global step.

    Args:
      session: a `fastsup.Session`.

    Returns:
      The variable, or None if it can't be counted: there is none, others also write it (in a remote session), it
      belongs to a strategy, or the graph may get another writer.
    """
    if session.sess_str or not session.graph.finalized:
        return None
    try:
        variable = training_util.get_global_step(session.graph)
    except TypeError:
        return None  # Another object has that name, such as the handle of a variable.
    if variable is None:
        return None
    if not isinstance(variable.op, ops.Operation):
        return None  # The step is one variable on several devices, which a strategy keeps equal.
    if not session._tracks_global_step:
        session._track_global_step(GlobalStepWrites(session.graph, variable))
    return variable


def resource_identity(op: ops.Operation) -> tuple[bytes, bytes]:
    """Returns the identity of a variable, which is equal for all operations that create its handle."""
    return op.get_attr("container"), op.get_attr("shared_name") or op.name.encode()


def _reached_from(op: ops.Operation) -> set[ops.Operation]:
    """Returns the operations that can't run without this one, including itself."""
    reached = set()
    waiting = [op]
    while waiting:
        current = waiting.pop()
        if current in reached:
            continue
        reached.add(current)
        waiting.extend(consumer for output in current.outputs for consumer in output.consumers())
        waiting.extend(current._control_outputs)
    return reached


def _constant(op: ops.Operation) -> Any:
    """Returns a constant's value, cast or not, or None. tensor_util.constant_value() would make it unfeedable."""
    if op.type == "Const":
        return tensor_util.MakeNdarray(op.get_attr("value"))
    if op.type not in ("Cast", "Identity"):
        return None
    value = _constant(op.inputs[0].op)
    return None if value is None else value.astype(op.outputs[0].dtype.as_numpy_dtype)
