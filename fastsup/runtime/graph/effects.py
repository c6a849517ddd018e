"""The effects of a step's operations, and the effects that a failed step skips."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from tensorflow.python.framework import dtypes, op_def_registry, ops, tensor_util

from fastsup.runtime.graph.operations import (
    FUNCTION_CALLS,
    PLAIN_CALLS,
    calls_type,
    named_functions,
    nodes_of_functions,
    sources_of,
)

# Stateful operations that can be evaluated again, because they only read.
_EVALUATED_AGAIN = frozenset(
    {
        "VarHandleOp", "ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp", "VariableShape",
        "HashTableV2", "LookupTableFindV2", "LookupTableSizeV2", "Assert", "CheckNumerics", "CheckNumericsV2",
        "IteratorV2", "OneShotIterator", "ReadFile", "MatchingFiles", "Placeholder", "PlaceholderWithDefault",
        "_Arg",
    }
)  # fmt: skip
# Operations that call the program's own functions, which may do anything.
_CALLS_PROGRAM = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})


def has_effect(op: ops.Operation) -> bool:
    """Returns True if an operation changes something that outlives the run or is visible outside of it."""
    return not is_pure(op)


def is_pure(op: ops.Operation) -> bool:
    """Returns True if an operation may run once more, on its own, without an effect."""
    if op.type in FUNCTION_CALLS:
        return all(_is_pure_type(node.op) for node in nodes_of_functions(op))
    return _is_pure_type(op.type)


def _is_pure_type(op_type: str) -> bool:
    if op_type in _EVALUATED_AGAIN or op_type in FUNCTION_CALLS:
        return True
    definition = op_def_registry.get(op_type)
    return definition is not None and not definition.is_stateful and op_type not in _CALLS_PROGRAM


UNKNOWN = -1

# Operations that take a resource variable's handle and only read through it.
READS = frozenset(
    {"ReadVariableOp", "_ReadVariablesOp", "VarIsInitializedOp", "VariableShape", "ResourceGather", "ResourceGatherNd",
     "IsVariableInitialized", "IsResourceInitialized", "DisableCopyOnRead"}
)  # fmt: skip
# Operations that pass a handle or reference on under another name.
PASSES_ON = frozenset(
    {"Identity", "IdentityN", "RefIdentity", "Switch", "RefSwitch", "Merge", "RefMerge", "Enter", "RefEnter", "Exit",
     "RefExit", "NextIteration", "RefNextIteration"}
)  # fmt: skip
# Low-level control flow, under which an operation can be skipped because an operation that it waits for was skipped.
CONTROL_FLOW = frozenset({"Switch", "RefSwitch", "Merge", "RefMerge", "Enter", "RefEnter", "Exit", "RefExit",
                          "NextIteration", "RefNextIteration", "LoopCond"})  # fmt: skip


def function_writes(name: str, find: Callable[[str], Any], seen: set[str]) -> bool:
    """Returns True if a function, or a function that it calls, may write something.

    Args:
      name: the function's name.
      find: function that returns the definition of a function by name, or None.
      seen: names of functions that needn't be checked. The checked ones are added.
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
    """Returns the number that each run of a call adds to a variable.

    Args:
      node: the NodeDef of the call.
      places: positions of the variable's handle among the call's arguments.
      find: as for `function_writes`.

    Returns:
      The number, 0 if the function only reads the variable, or UNKNOWN unless it always adds one constant.
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
    """Returns the name of the node or argument that an input of a function's node comes from."""
    return source.lstrip("^").split(":")[0]


def _needed_for(nodes: dict[str, Any], sources: list[str]) -> set[str]:
    """Returns the names of a function's nodes that the sources need."""
    needed: set[str] = set()
    waiting = list(map(_node_of, sources))
    while waiting:
        name = waiting.pop()
        if name in nodes and name not in needed:
            needed.add(name)
            waiting.extend(map(_node_of, nodes[name].input))
    return needed


def _constant(nodes: dict[str, Any], source: str) -> int:
    """Returns the non-negative constant that is an input of a function's node, cast or not, or UNKNOWN."""
    node = nodes.get(_node_of(source))
    while node is not None and node.op in ("Cast", "Identity"):
        node = nodes.get(_node_of(node.input[0]))
    if node is None or node.op != "Const":
        return UNKNOWN
    value = tensor_util.MakeNdarray(node.attr["value"].tensor)
    return int(value) if value.shape == () and value >= 0 and value == int(value) else UNKNOWN


_SAVES = frozenset({"SaveV2", "Save", "SaveSlices"})
_VARIABLES = frozenset({"VarHandleOp", "VariableV2", "Variable"})
_TABLE_WRITERS = ("LookupTableInsert", "LookupTableImport", "LookupTableRemove")
# These operations wait for other processes, or for the saving thread itself, so nothing may wait for them.
_WAITS_FOR_OTHERS = ("AccumulatorTakeGradient", "SparseAccumulatorTakeGradient", "ResourceAccumulatorTakeGradient")


class VariableAccess(enum.IntEnum):
    """A run's access to variables."""

    READS = 0
    WRITES = 1
    # A checkpoint of variables, which must all be saved between steps.
    SAVES = 2
    # A checkpoint of fed values.
    SAVES_COPIES = 3


def access_of(operations: Iterable[ops.Operation]) -> VariableAccess:
    """Returns the access to variables of a run of these operations."""
    types = {op.type for op in operations}
    if types & _SAVES:
        return VariableAccess.SAVES if types & _VARIABLES else VariableAccess.SAVES_COPIES
    if any(kind.startswith(_WAITS_FOR_OTHERS) for kind in types):
        return VariableAccess.READS
    return VariableAccess.WRITES if any(writes_variable(op) for op in operations) else VariableAccess.READS


def writes_variable(op: ops.Operation) -> bool:
    """Returns True if an operation changes a variable or a table."""
    if op.type in READS or op.type in PASSES_ON:
        return False
    if op.type.startswith(_TABLE_WRITERS):
        return True
    if op.type in FUNCTION_CALLS:
        # A function may only read, for example a conditional that reads the global step.
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


def takes_reference(op: ops.Operation, tensor: Any) -> bool:
    """Returns True if an operation takes the variable itself instead of a copy of its value."""
    if tensor.dtype == dtypes.resource:
        return True
    if op.op_def is None:
        return True
    position = [i for i, source in enumerate(op.inputs) if source is tensor]
    arguments = op.op_def.input_arg
    if len(arguments) != len(op.inputs):
        return any(argument.is_ref for argument in arguments)
    return any(arguments[i].is_ref for i in position)


def _definition(graph: Any, name: str) -> Any:
    function = graph._get_function(name)
    return getattr(function, "cached_definition", None) or getattr(function, "definition", None)


def handle_source(tensor: Any) -> ops.Operation:
    """Returns the operation that produces a handle."""
    op: ops.Operation = tensor.op
    seen = set()
    while op.type in PASSES_ON and op.inputs and op not in seen:
        seen.add(op)
        op = op.inputs[0].op
    return op


# Types of operations that don't fail because of input values. Indices, labels, texts and matrices can cause failures.
_NEVER = """
Abs Acos Acosh Add AddN AddV2 AdjustContrastv2 ApproximateEqual AsString Asin Asinh AssignAddVariableOp
AssignSubVariableOp AssignVariableOp Atan Atan2 Atanh AvgPool AvgPoolGrad BatchMatMul BatchMatMulV2 BatchMatMulV3
BiasAdd BiasAddGrad BiasAddV1 Bitcast BitwiseAnd BitwiseOr BitwiseXor BroadcastArgs BroadcastGradientArgs Bucketize Cast
Ceil ClipByValue Complex ComplexAbs Conj Const Conv2D Conv2DBackpropFilter Conv2DBackpropInput Conv3D
Conv3DBackpropFilterV2 Conv3DBackpropInputV2 Cos Cosh DepthwiseConv2dNative DepthwiseConv2dNativeBackpropFilter
DepthwiseConv2dNativeBackpropInput Digamma DisableCopyOnRead DivNoNan Einsum Elu EluGrad EnsureShape Equal Erf Erfc
Erfinv Exp Expm1 ExtractImagePatches Floor FusedBatchNorm FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3
FusedBatchNormV2 FusedBatchNormV3 Greater GreaterEqual HashTableV2 Identity IdentityN Igamma Igammac Imag InTopK
InTopKV2 Inv InvGrad IsFinite IsInf IsNan IteratorV2 L2Loss LeakyRelu LeakyReluGrad Less LessEqual Lgamma Log Log1p
LogSoftmax LogicalAnd LogicalNot LogicalOr LookupTableSizeV2 MatMul MaxPool MaxPoolGrad Maximum Minimum Mul MulNoNan
Ndtri Neg NoOp NotEqual OnesLike OptionalFromValue OptionalHasValue OptionalNone Pack Placeholder PlaceholderWithDefault
Polygamma PreventGradient PrintV2 Rank ReadVariableOp Real RealDiv Reciprocal ReciprocalGrad Relu Relu6 Relu6Grad
ReluGrad Rint RngReadAndSkip RngSkip Round Rsqrt RsqrtGrad Select SelectV2 Selu SeluGrad Shape ShapeN Sigmoid
SigmoidGrad Sign Sin Sinh Size Snapshot Softmax SoftmaxCrossEntropyWithLogits Softplus SoftplusGrad Softsign
SoftsignGrad Sqrt SqrtGrad Square SquaredDifference Squeeze StatelessRandomGetAlg StatelessRandomGetKeyCounter
StopGradient StringFormat StringJoin StringLength StringLower StringStrip StringToHashBucketFast StringUpper Sub Tan
Tanh TanhGrad Unique UniqueV2 Unpack VarHandleOp VarIsInitializedOp VariableShape Where Xdivy Xlog1py Xlogy ZerosLike
Zeta _Arg
"""
_NEVER_FAIL = frozenset(_NEVER.split())
_NEVER_FAILING_UPDATES = "ResourceApply"
# Operations that may fail because of some inputs: axes, sizes, indices. Constants and shapes aren't such inputs,
# because a step in which they are wrong never runs.
_BY_ALL_BUT_THE_FIRST = """
All Any ArgMax ArgMin BroadcastTo Cumprod Cumsum EuclideanNorm ExpandDims Gather GatherNd GatherV2 MatrixBandPart
MatrixDiagPartV3 MatrixDiagV3 Max Mean Min MirrorPad OneHot Pad PadV2 Prod Reshape ResizeBilinear
ResizeNearestNeighbor ResourceGather ResourceGatherNd ReverseV2 Roll Slice SplitV StridedSlice Sum Tile TopKV2
Transpose
"""
_BY_THE_FIRST = """
Fill RandomStandardNormal RandomUniform Split StatelessRandomNormal StatelessRandomNormalV2 StatelessRandomUniform
StatelessRandomUniformV2 StatelessTruncatedNormal StatelessTruncatedNormalV2 TruncatedNormal
"""
_FAIL_BY_INPUTS = {
    **dict.fromkeys(_BY_ALL_BUT_THE_FIRST.split(), slice(1, None)),
    **dict.fromkeys(_BY_THE_FIRST.split(), slice(0, 1)),
    "ConcatV2": slice(-1, None),
    "StridedSliceGrad": slice(0, 4),
}
# Operations that may fail for integers that are zero or negative.
_FAIL_BY_INTEGERS = frozenset({"Div", "FloorDiv", "FloorMod", "Mod", "Pow", "TruncateDiv", "TruncateMod"})
# The gradient of an embedding adds up its rows in segments. The segment numbers come from the look-up, which fails
# earlier, or are numbers of unique rows.
_LOOKS_UP = ("Gather", "ResourceGather")
_ADDS_UP = ("UnsortedSegment",)
_SAME_NUMBERS = ("Cast", "ExpandDims", "Identity", "Reshape", "Squeeze")
_NUMBERS_SEGMENTS = ("Unique", "UniqueV2")
_OF_SHAPES = frozenset({"Const", "Rank", "Shape", "ShapeN", "Size", "VariableShape"})
_OPAQUE = ("resource", "variant")


class CanFail:
    """Determines if an operation can fail. Must be called first for the operations that it depends on.

    Args:
      by_shapes: Whether mismatched shapes count as failures. Otherwise, computations with only shapes and constants are
        assumed not to fail.
    """

    def __init__(self, by_shapes: bool) -> None:
        self._by_shapes = by_shapes
        self._of_shapes: set[ops.Operation] = set()
        # Operations whose results were the row numbers of a look-up.
        self._looked_up: set[ops.Operation] = set()

    def __call__(self, op: ops.Operation) -> bool:
        """Returns True if an operation can fail."""
        if op.type in _OF_SHAPES or (op.inputs and self._are_of_shapes(op.inputs) and is_pure(op)):
            self._of_shapes.add(op)
        if op.type.startswith(_LOOKS_UP):
            self._looked_up.add(_source(op.inputs[1]))
        if self._can_fail_by_value(op):
            return True
        unknown = [
            tensor for tensor in op.inputs if tensor.dtype.name not in _OPAQUE and not tensor.shape.is_fully_defined()
        ]
        return self._by_shapes and len(unknown) > 1

    def _can_fail_by_value(self, op: ops.Operation) -> bool:
        if op.type in _NEVER_FAIL or op.type.startswith(_NEVER_FAILING_UPDATES) or op in self._of_shapes:
            return False
        if op.type in _FAIL_BY_INPUTS:
            return not self._are_of_shapes(list(op.inputs)[_FAIL_BY_INPUTS[op.type]])
        if op.type.startswith(_ADDS_UP):
            source = _source(op.inputs[1])
            return not (source in self._looked_up or source.type in _NUMBERS_SEGMENTS)
        if op.type in _FAIL_BY_INTEGERS:
            is_known = op.type != "Pow" and self._are_of_shapes(list(op.inputs)[1:])
            return bool(op.inputs[0].dtype.is_integer) and not is_known
        if op.type == "OptionalGetValue":
            return bool(_source(op.inputs[0]).type != "OptionalFromValue")
        return op.type not in FUNCTION_CALLS or calls_type(op, lambda op_type: op_type not in _NEVER_FAIL)

    def _are_of_shapes(self, tensors: Iterable[Any]) -> bool:
        return all(tensor.op in self._of_shapes for tensor in tensors)


def _source(tensor: Any) -> ops.Operation:
    op: ops.Operation = tensor.op
    while op.type in _SAME_NUMBERS:
        op = op.inputs[0].op
    return op


# When an operation fails, TensorFlow's ordinary executor still runs everything that doesn't depend on it: a counter, or
# the number of a metric's values. The single-threaded executor stops immediately. Until then, it has run the operations
# that happen to be sorted before the failed one, in an order that differs between graphs. The state after such a step
# equals the ordinary executor's only if each operation with an effect runs before the failed one, or depends on it.

READS_INPUT = frozenset({"IteratorGetNext", "IteratorGetNextSync", "MultiDeviceIteratorGetNextFromShard"})

Test = Callable[[ops.Operation], bool]


def changes_beside_input(step: Sequence[ops.Operation]) -> bool:
    """Returns True if the run that finds the input's end may or may not change a variable, depending on the order.

    A step that reads past the end of a dataset fails with OutOfRangeError, which is how most evaluations end. The
    counter of evaluations is ignored, because it isn't read after the end of the input.

    Args:
      step: the operations of a graph's steps.
    """
    independent = {effect for effect, _, _ in unordered(step, _reads_input, writes_variable)}
    if not independent:
        return False
    counters = {variable.op for variable in step[0].graph.get_collection(ops.GraphKeys.EVAL_STEP)}
    return any(handle_source(op.inputs[0]) not in counters for op in independent)


def unordered(
    operations: Iterable[ops.Operation], may_fail: Test, may_have_effect: Test
) -> Iterator[tuple[ops.Operation, ops.Operation, bool]]:
    """Yields the pairs of an operation with an effect and one that can fail, if neither depends on the other.

    An operation that calls a function forms a pair with itself if both can be in the function.

    Args:
      operations: operations, including all that they depend on.
      may_fail: function that returns True if an operation can fail. It is called for each operation after its sources.
      may_have_effect: function that returns True if an operation can have an effect.

    Yields:
      The operation with the effect, the one that can fail, and True if the latter depends on everything that can fail
      and that the former depends on.
    """
    failing: list[ops.Operation] = []
    effects: list[ops.Operation] = []
    # Bit masks of `failing` and of `effects`: an operation itself and those that it depends on.
    upstream_failing: dict[ops.Operation, int] = {}
    upstream_effects: dict[ops.Operation, int] = {}
    for op in _in_order_of_dependence(operations):
        mask_of_failing = mask_of_effects = 0
        for source in sources_of(op):
            mask_of_failing |= upstream_failing.get(source, 0)
            mask_of_effects |= upstream_effects.get(source, 0)
        if may_fail(op):
            mask_of_failing |= 1 << len(failing)
            failing.append(op)
        if may_have_effect(op):
            mask_of_effects |= 1 << len(effects)
            effects.append(op)
            if op.type in FUNCTION_CALLS and failing and failing[-1] is op:
                yield op, op, False
        upstream_failing[op], upstream_effects[op] = mask_of_failing, mask_of_effects
    everything = (1 << len(failing)) - 1
    for number, effect in enumerate(effects):
        mask = upstream_failing[effect]
        rest = everything & ~mask
        while rest:
            lowest = rest & -rest
            rest ^= lowest
            other = failing[lowest.bit_length() - 1]
            if not upstream_effects[other] >> number & 1:
                yield effect, other, not mask & ~upstream_failing[other]


def _in_order_of_dependence(operations: Iterable[ops.Operation]) -> Iterator[ops.Operation]:
    """Sorts operations after those that they depend on. Creation order isn't enough for later added control inputs."""
    done: set[ops.Operation] = set()
    begun: set[ops.Operation] = set()
    for end in operations:
        waiting = [end]
        while waiting:
            op = waiting[-1]
            if op in begun:
                waiting.pop()
                if op not in done:
                    done.add(op)
                    yield op
            else:
                begun.add(op)
                waiting.extend(source for source in sources_of(op) if source not in begun)


def _reads_input(op: ops.Operation) -> bool:
    return op.type in READS_INPUT or calls_type(op, lambda op_type: op_type in READS_INPUT)
