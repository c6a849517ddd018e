"""Strategies that place variables on parameter servers, for `tf.compat.v1.train.replica_device_setter`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
from tensorflow.python.framework import tensor_shape

__all__ = ["GreedyLoadBalancingStrategy", "RandomStrategy", "byte_size_load_fn"]


class RandomStrategy:
    """Places an operation by a hash of its name: the same one in each run.

    Args:
      num_ps_tasks: number of parameter servers.
      seed: number that is hashed with the name.
    """

    def __init__(self, num_ps_tasks: int, seed: int = 0) -> None:
        self._num_tasks = num_ps_tasks
        self._seed = seed

    def __call__(self, op: Any) -> int:
        """The index of the parameter server for an operation."""
        # Python's own hash differs from process to process.
        digest = hashlib.md5(f"{op.name}_{self._seed:d}".encode(), usedforsecurity=False).hexdigest()
        return int(digest, 16) % self._num_tasks


class GreedyLoadBalancingStrategy:
    """Places an operation on the parameter server that has the least load so far.

    Args:
      num_tasks: number of parameter servers.
      load_fn: function of an operation that returns its load, a number such as `byte_size_load_fn`.
    """

    def __init__(self, num_tasks: int, load_fn: Callable[[Any], float]) -> None:
        self._load_fn = load_fn
        self._ps_loads = np.zeros(num_tasks)

    def __call__(self, op: Any) -> Any:
        """The index of the parameter server for an operation."""
        task = np.argmin(self._ps_loads)
        self._ps_loads[task] += self._load_fn(op)
        return task


def byte_size_load_fn(op: Any) -> int:
    """The size of an operation's output.

    Args:
      op: an operation with one output, such as a variable.

    Returns:
      The size in bytes.

    Raises:
      ValueError: the operation has another number of outputs, or the shape of the output isn't known.
    """
    if len(op.outputs) != 1:
        raise ValueError(f"Op {op} must have a single output")
    output = op.outputs[0]
    kind, shape = output.dtype, output.get_shape()
    if op.type == "VarHandleOp":
        # The output is a handle: the variable's type and shape are attributes.
        kind = op.get_attr("dtype")
    if not shape.is_fully_defined() or op.type == "VarHandleOp":
        shape = tensor_shape.TensorShape(op.get_attr("shape"))
    shape.assert_is_fully_defined()
    return int(shape.num_elements()) * int(kind.size)
