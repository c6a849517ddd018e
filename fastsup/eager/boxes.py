"""Boxes: variables in which tensors that a session can't be fed go from eager code into a lifted graph."""

from __future__ import annotations

import functools
import itertools
from typing import Any

from tensorflow.python.eager import context
from tensorflow.python.framework import ops
from tensorflow.python.ops import gen_resource_variable_ops

from fastsup.eager.context_life import OfEagerContext
from fastsup.eager.lifted_calls import Box

_CONTAINER = "fastsup"
_numbers = itertools.count()


class BoxVariable(OfEagerContext):
    """A variable of the eager context that a graph reads by its name.

    The tensor in it, a resource or a variant as a rule, isn't copied. The variable goes with this object.

    Args:
      tensor: the tensor that it holds first; None if nothing.
      dtype: type of its tensors.
      shape: their shape.
    """

    def __init__(self, tensor: Any, dtype: Any, shape: Any) -> None:
        self._handle = None
        self._take_context()
        self._dtype, self._shape = dtype, shape
        self._name = f"fastsup_box_{next(_numbers)}"
        with context.eager_mode(), ops.device("CPU:0"):
            self._handle = self._open()
        self.box = Box(None, functools.partial(_write, self._handle))
        if tensor is not None:
            self.box.put(tensor)

    def _open(self) -> Any:
        return gen_resource_variable_ops.var_handle_op(
            dtype=self._dtype, shape=self._shape, shared_name=self._name, container=_CONTAINER
        )

    def read(self) -> Any:
        """Returns the tensor with the content of the box, in the graph that is the default one."""
        return gen_resource_variable_ops.read_variable_op(self._open(), self._dtype)

    def empty(self) -> None:
        """Deletes the variable, and with it the reference to its tensor."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            with context.eager_mode(), ops.device("CPU:0"):
                gen_resource_variable_ops.destroy_resource_op(handle, ignore_lookup_error=True)

    def __del__(self) -> None:
        if self._handle is not None and self._usable():
            with self._uninterrupted:
                self.empty()


def _write(handle: Any, tensor: Any) -> None:
    with context.eager_mode(), ops.device("CPU:0"):
        gen_resource_variable_ops.assign_variable_op(handle, tensor)
