"""Eager variables in other graphs, which find them by the names of their handles."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from tensorflow.core.framework import tensor_shape_pb2
from tensorflow.python.framework import dtypes, ops
from tensorflow.python.ops import gen_resource_variable_ops

__all__ = ["VariableHandle", "variable_handle"]

_HANDLE = re.compile(
    r'<ResourceHandle\(name="(.*)", device="([^"]*)", container="([^"]*)", type="tensorflow::Var"', re.DOTALL
)


class VariableHandle(NamedTuple):
    """What any graph finds an eager variable by. It doesn't keep the variable alive.

    Args:
      shared_name: the variable's name among the resources of its device.
      container: the container that it is in.
      device: its device.
      dtype: its type, as a number of TensorFlow's DataType.
      shape: its shape, as the bytes of a TensorShapeProto.
    """

    shared_name: str
    container: str
    device: str
    dtype: int
    shape: bytes

    def in_graph(self, name: str, is_placed: bool = True) -> Any:
        """The handle of the variable in the default graph.

        Args:
          name: name of the operation.
          is_placed: whether the operation asks for the variable's device.
        """
        with ops.device(self.device if is_placed else None):
            return gen_resource_variable_ops.var_handle_op(
                dtype=self.dtype,
                shape=tensor_shape_pb2.TensorShapeProto.FromString(self.shape),
                shared_name=self.shared_name,
                container=self.container,
                name=name,
            )


def variable_handle(handle: Any) -> VariableHandle | None:
    """Describes the handle of an eager variable.

    Args:
      handle: an eager tensor.

    Returns:
      None if it isn't the handle of a variable, or TensorFlow doesn't tell its names.
    """
    found = _HANDLE.search(str(handle)) if handle.dtype == dtypes.resource else None
    if found is None or len(handle._handle_data.shape_and_type) != 1:
        return None
    (contents,) = handle._handle_data.shape_and_type
    return VariableHandle(found[1], found[3], handle.device, contents.dtype, contents.shape.SerializeToString())
