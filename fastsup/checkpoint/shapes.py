"""Variables whose shape in a checkpoint is another one than in the model: TensorFlow restores them without a word."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tensorflow.python.framework import errors
from tensorflow.python.platform import tf_logging as logging

from fastsup.checkpoint.index import open_checkpoint

__all__ = ["warn_of_other_shapes"]

# As many are named.
_LISTED = 5


def warn_of_other_shapes(variables: Iterable[Any], path: str) -> None:
    """Warns of variables that a checkpoint has in other shapes. A resource variable takes these over.

    Args:
      variables: the variables of the model.
      path: path of the checkpoint that was restored.
    """
    try:
        _, shapes = open_checkpoint(path)
    except (errors.OpError, RuntimeError, ValueError, IndexError):
        return  # It was restored, by a server that may see other files.
    other = []
    for variable in variables:
        saved = shapes.get(variable.op.name)
        is_part = getattr(variable, "_save_slice_info", None) is not None
        if saved is not None and not is_part and not variable.shape.is_compatible_with(saved):
            other.append(f"{variable.op.name} is {variable.shape} in the model and {tuple(saved)} there")
    if other:
        more = f"; and {len(other) - _LISTED} more" if len(other) > _LISTED else ""
        logging.warning(
            "%s has variables of other shapes, which are used: %s%s. Is it the checkpoint of another model? See "
            "`python -m fastsup docs recovery#damage-or-a-mistake-in-the-program`.",
            path,
            "; ".join(other[:_LISTED]),
            more,
        )
