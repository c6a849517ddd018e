"""Estimates the cost of a step: the time of its operations, and the memory of its compiled plan.

The estimate depends on shapes. A dimension that isn't known before the step runs is assumed to be the batch size of the
graph's datasets if it comes from there, and otherwise to be large.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod, sqrt
from typing import Any

from tensorflow.python.framework import ops, tensor_util

from fastsup.runtime.graph.operations import FUNCTION_CALLS, nodes_of_functions, sources_of

_ELEMENTS_PER_SEC = 1e9
_FLOPS_PER_SEC = 2e10
_UNKNOWN_DIMENSION = 1024

_FREE = frozenset(
    {
        "Const", "EnsureShape", "Identity", "NoOp", "Placeholder", "ReadVariableOp", "Reshape", "VarHandleOp",
        "VariableV2", "_Arg",
    }
)  # fmt: skip
_MATRIX_PRODUCTS = frozenset({"MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"})
# Position of the batch size among a batching dataset's inputs.
_BATCH_SIZE_INPUT = {
    "BatchDataset": 1,
    "BatchDatasetV2": 1,
    "ParallelBatchDataset": 1,
    "PaddedBatchDataset": 1,
    "PaddedBatchDatasetV2": 1,
    "MapAndBatchDataset": -3,
    "ExperimentalMapAndBatchDataset": -3,
}
_FROM_DATASETS = frozenset({"IteratorGetNext", "IteratorGetNextSync", "IteratorGetNextAsOptional"})
# Operations whose number of results doesn't depend on the number of their inputs.
_RESIZING = ("Where", "Unique", "Tile", "Range", "Fill", "Ragged", "SparseFill", "Dynamic", "TensorArray", "TensorList")


class StepCost:
    """Estimates for the operations of a graph.

    Args:
      graph: the graph.
    """

    def __init__(self, graph: ops.Graph) -> None:
        self._batch_size = _batch_size(graph)
        self._elements: dict[ops.Operation, list[float]] = {}
        # The value of an unknown dimension, derived from the batch size, for each operation whose results have one.
        self._rows: dict[ops.Operation, float] = {}
        for op in graph.get_operations():
            self._elements[op] = [self._elements_of(op, tensor) for tensor in op.outputs]
        self._secs: dict[ops.Operation, float] = {}

    def secs(self, op: ops.Operation) -> float:
        """Returns the estimated seconds of an operation."""
        secs = self._secs.get(op)
        if secs is None:
            secs = self._secs[op] = 0.0 if op.type in _FREE else self._secs_of(op)
        return secs

    def _secs_of(self, op: ops.Operation) -> float:
        results = self._elements[op]
        sources = [self._count(tensor) for tensor in op.inputs]
        if op.type in _MATRIX_PRODUCTS:
            # The operation multiplies m x k numbers by k x n numbers, b times.
            batches = 1.0 if op.type == "MatMul" else self._batches_of(op)
            inner = sqrt(sources[0] * sources[1] / (results[0] * batches)) if results[0] else 0.0
            return float(2.0 * results[0] * inner / _FLOPS_PER_SEC)
        if "Conv" in op.type and len(sources) > 1:
            return 2.0 * results[0] * sources[1] / _FLOPS_PER_SEC
        return sum(results or sources) / _ELEMENTS_PER_SEC

    def worth_of_parallelism(self, operations: Iterable[ops.Operation]) -> float:
        """Returns the seconds that parallel execution could save: the total time minus the longest chain.

        Args:
          operations: operations in creation order.
        """
        total = 0.0
        chain_ending_at: dict[ops.Operation, float] = {}
        for op in operations:
            secs = self.secs(op)
            total += secs
            # Inputs were created first, except for the back edges of loops.
            before = max((chain_ending_at.get(source, 0.0) for source in sources_of(op)), default=0.0)
            chain_ending_at[op] = secs + before
        return total - max(chain_ending_at.values(), default=0.0)

    def _count(self, tensor: Any) -> float:
        known = self._elements.get(tensor.op)
        return known[tensor.value_index] if known else float(_UNKNOWN_DIMENSION)

    def _batches_of(self, op: ops.Operation) -> float:
        shape = op.outputs[0].shape
        if shape.rank is None:
            return 1.0
        return float(prod(size or _UNKNOWN_DIMENSION for size in shape.as_list()[:-2]))

    def _elements_of(self, op: ops.Operation, tensor: Any) -> float:
        if tensor.shape.rank is None:
            return float(_UNKNOWN_DIMENSION)
        sizes = tensor.shape.as_list()
        known = float(prod(size for size in sizes if size is not None))
        unknown = sizes.count(None)
        if unknown == 0:
            return known
        known *= float(_UNKNOWN_DIMENSION ** (unknown - 1))
        rows = self._rows_of(op, sizes, known)
        if rows is None:
            return known * _UNKNOWN_DIMENSION
        self._rows[op] = max(rows, self._rows.get(op, 0.0))
        return known * rows

    def _rows_of(self, op: ops.Operation, sizes: list[int | None], known: float) -> float | None:
        """Returns the unknown first dimension, as far as it follows from the batch size."""
        if op.type in _FROM_DATASETS:
            return None if sizes[0] is not None or self._batch_size is None else float(self._batch_size)
        if op.type.startswith(_RESIZING):
            return None
        if op.type == "Reshape" and known:
            source = op.inputs[0]
            follows = source.op in self._rows or source.shape.is_fully_defined()
            return self._count(source) / known if follows else None
        return max((self._rows[tensor.op] for tensor in op.inputs if tensor.op in self._rows), default=None)


def _batch_size(graph: ops.Graph) -> int | None:
    """Returns the size of the largest batches of the graph's datasets, or None unless all are known."""
    sizes = [
        _constant(op.inputs[_BATCH_SIZE_INPUT[op.type]])
        for op in graph.get_operations()
        if op.type in _BATCH_SIZE_INPUT
    ]
    for function in graph._functions.values():
        nodes = {node.name: node for node in function.cached_definition.node_def}
        for node in nodes.values():
            if node.op in _BATCH_SIZE_INPUT:
                inputs = [name for name in node.input if not name.startswith("^")]
                source: Any = nodes.get(inputs[_BATCH_SIZE_INPUT[node.op]].partition(":")[0])
                if source is None or source.op != "Const":
                    return None
                sizes.append(int(tensor_util.MakeNdarray(source.attr["value"].tensor)))
    known = [size for size in sizes if size is not None]
    return max(known, default=None) if len(known) == len(sizes) else None


def _constant(tensor: Any) -> int | None:
    value = tensor_util.constant_value(tensor)
    return None if value is None else int(value)


# Measured with TensorFlow 2.21, as the growth of the resident memory per callable, for 60 to 500 callables after one
# run each. A callable that runs almost nothing takes 28 kB. An operation of a training step with dense layers takes 1.8
# kB, and one of a chain of elementwise operations 0.1 kB. The contents of functions are copied for each call: 25 kB for
# a conditional with one operation per branch, 40 kB for a loop, 7 kB for a call of two operations.
_CALLABLE = 28 << 10
_OPERATION = 2 << 10
_IN_FUNCTION = 4 << 10


def callable_bytes(operations: Iterable[ops.Operation]) -> int:
    """Estimates the bytes of a callable, rather too high than too low.

    Args:
      operations: the callable's operations.
    """
    size = _CALLABLE
    for op in operations:
        size += _OPERATION
        if op.type in FUNCTION_CALLS:
            size += _IN_FUNCTION * sum(1 for _ in nodes_of_functions(op))
    return size
