"""Boxes: variables in which tensors that a session can't be fed go from eager code into a lifted graph."""

from __future__ import annotations

import itertools
from typing import Any

from tensorflow.python.eager import context
from tensorflow.python.framework import ops
from tensorflow.python.ops import gen_resource_variable_ops

from fastsup.eager.devices.context_life import OfEagerContext
from fastsup.eager.lifted_calls import Box

_CONTAINER = "fastsup"
_numbers = itertools.count()


class BoxVariable:
    """A variable of the eager context that a graph reads by its name.

    The tensor in it, a resource or a variant as a rule, isn't copied. The variable goes with this object.

    Args:
      tensor: the tensor that it holds first; None if nothing.
      dtype: type of its tensors.
      shape: their shape.
      device: the device whose memory it is in.
    """

    def __init__(self, tensor: Any, dtype: Any, shape: Any, device: str = "CPU:0") -> None:
        self._dtype, self._shape, self._device = dtype, shape, device
        self._name = f"fastsup_box_{next(_numbers)}"
        with context.eager_mode(), ops.device(device):
            self._variable = _Variable(self._open(), device)
        self.box: Box = Box(None, self._variable.write)
        if tensor is not None:
            self.box.store(tensor)

    def _open(self) -> Any:
        return gen_resource_variable_ops.var_handle_op(
            dtype=self._dtype, shape=self._shape, shared_name=self._name, container=_CONTAINER, name=self._name
        )

    def read(self, name: str) -> Any:
        """Returns the tensor with the content of the box, in the graph that is the default one.

        Args:
          name: name of the operation.
        """
        with ops.device(self._device):
            return gen_resource_variable_ops.read_variable_op(self._open(), self._dtype, name=name)

    def empty(self) -> None:
        """Deletes the variable, and with it the reference to its tensor."""
        self._variable.write(None)


class _Variable(OfEagerContext):
    """The variable of a box, which goes with this object.

    Args:
      handle: its handle.
      device: the device that it is on.
    """

    # Variables that couldn't be deleted where the garbage collector ran. The next one that is made deletes them.
    _left: list[_Variable] = []  # noqa: RUF012

    def __init__(self, handle: Any, device: str) -> None:
        self._handle = None
        self._device = device
        self._is_there = False
        self._take_context()
        self._handle = handle
        while self._left:
            self._left.pop().write(None)

    def write(self, tensor: Any) -> None:
        """Writes a tensor. None deletes the variable; the next tensor makes it again.

        Args:
          tensor: the tensor, or None.
        """
        if tensor is not None:
            self._is_there = True
            with context.eager_mode(), ops.device(self._device):
                gen_resource_variable_ops.assign_variable_op(self._handle, tensor)
        elif self._is_there and self._usable():
            self._is_there = False
            with self._completed_before_exit, context.eager_mode(), ops.device(self._device):
                gen_resource_variable_ops.destroy_resource_op(self._handle, ignore_lookup_error=True)

    def __del__(self) -> None:
        was_there = self._is_there
        try:
            self.write(None)
        except AttributeError:
            # In a new thread, while TensorFlow makes its part of the eager context: it has no stack of contexts yet.
            self._is_there = was_there
            self._left.append(self)
