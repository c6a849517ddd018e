"""What functions are called with where TensorFlow has several devices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tensorflow.python.framework import dtypes

from fastsup.eager.devices.variable_handle import VariableHandle, variable_handle

__all__ = ["is_moved", "variables_on_devices", "why_not_given", "why_not_held"]

_FIRST_CPU = "/device:CPU:0"
# What TensorFlow's sessions move between a run and the memory of a device.
_MOVED = frozenset(
    {
        dtypes.bfloat16, dtypes.bool, dtypes.complex64, dtypes.complex128, dtypes.float16, dtypes.float32,
        dtypes.float64, dtypes.int8, dtypes.int16, dtypes.int64, dtypes.uint8, dtypes.uint16,
    }
)  # fmt: skip


def is_moved(dtype: Any) -> bool:
    """Whether TensorFlow's sessions move tensors of a type between a run and the memory of a device."""
    return dtype in _MOVED


def variables_on_devices(inputs: Sequence[Any]) -> dict[int, VariableHandle]:
    """The variables among the inputs of a function that aren't on the first CPU device, by their positions.

    Args:
      inputs: the flat inputs.
    """
    found = {}
    for place, value in enumerate(inputs):
        if value.dtype == dtypes.resource and _FIRST_CPU not in value.device:
            handle = variable_handle(value)
            if handle is not None:
                found[place] = handle
    return found


def why_not_held(values: Iterable[Any]) -> str:
    """Why one of some values can't be put into a box, which is on the host.

    Args:
      values: the resources and variants.

    Returns:
      The reason; an empty string if there is none.
    """
    for value in values:
        if _FIRST_CPU not in value.device:
            return f"one of its arguments is a {value.dtype.name} on {value.device}"
    return ""


def why_not_given(feeds: Iterable[Any]) -> str:
    """Why a session can't be given one of the tensors where it lies.

    Args:
      feeds: the inputs that aren't resources or variants.

    Returns:
      The reason; an empty string if there is none.
    """
    for value in feeds:
        if not is_moved(value.dtype) and "/device:CPU:" not in value.backing_device:
            return f"one of its arguments is a tensor of {value.dtype.name} in the memory of {value.backing_device}"
    return ""
