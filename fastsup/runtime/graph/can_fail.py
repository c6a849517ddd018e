"""Which operations can fail in a run: by the values that they get, or by shapes that don't fit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tensorflow.python.framework import ops

from fastsup.runtime.graph.effects import is_pure
from fastsup.runtime.graph.operations import FUNCTION_CALLS, calls_type

# Types of operations that fail by no value that they get. An index, a label, a text and a matrix are such values.
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
# These may fail by some of their inputs: axes, sizes, indices. Constants and shapes are no such values: a step in which
# they are wrong never runs.
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
# These may fail by zeros, and by negative numbers, among integers.
_FAIL_BY_INTEGERS = frozenset({"Div", "FloorDiv", "FloorMod", "Mod", "Pow", "TruncateDiv", "TruncateMod"})
# The gradient of an embedding adds up in segments what its rows get. Their numbers are those of the look-up, which
# fails before, or numbers of unique rows.
_LOOKS_UP = ("Gather", "ResourceGather")
_ADDS_UP = ("UnsortedSegment",)
_SAME_NUMBERS = ("Cast", "ExpandDims", "Identity", "Reshape", "Squeeze")
_NUMBERS_SEGMENTS = ("Unique", "UniqueV2")
_OF_SHAPES = frozenset({"Const", "Rank", "Shape", "ShapeN", "Size", "VariableShape"})
_OPAQUE = ("resource", "variant")


class CanFail:
    """Tells whether an operation can fail. It must be asked of those before that the operation depends on.

    Args:
      by_shapes: whether shapes that don't fit count. Else, what an operation does with shapes and constants alone
        doesn't count.
    """

    def __init__(self, by_shapes: bool) -> None:
        self._by_shapes = by_shapes
        self._of_shapes: set[ops.Operation] = set()
        # Operations whose numbers were rows of a look-up.
        self._looked_up: set[ops.Operation] = set()

    def __call__(self, op: ops.Operation) -> bool:
        """Whether an operation can fail."""
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
