"""A checkpoint of another model: the error of its restore, and a warning of the shapes that TensorFlow takes over."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tensorflow.python.framework import errors
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import saver as tf_saver

from fastsup.checkpoint.index import is_object_based, open_checkpoint
from fastsup.checkpoint.partial_restore import restoring_operations, shape_of_target, wanted_by

__all__ = ["describe_variables", "explaining_other_model", "renumbered_layer_hint", "warn_of_other_shapes"]

# As many names are listed.
_LISTED = 20
_LISTED_SHAPES = 5
# What an error of the reader can be.
_UNREADABLE = (errors.OpError, RuntimeError, ValueError, IndexError)


class _Misfit(NamedTuple):
    """What a model wants of a checkpoint and doesn't find there.

    Args:
      missing: names that the checkpoint lacks.
      different: what differs, a clause for each name.
      unused: names in the checkpoint that the model doesn't want.
    """

    missing: list[str]
    different: list[str]
    unused: list[str]


def _listed(texts: Iterable[str], separator: str = ", ") -> str:
    found = list(texts)
    more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    return separator.join(found[:_LISTED]) + more


def describe_variables(checkpoint_path: Any) -> str:
    """The variables of a checkpoint with their shapes, the first 20 by name, in one sentence."""
    try:
        _, shapes = open_checkpoint(checkpoint_path)
    except _UNREADABLE as error:
        return f"The checkpoint {checkpoint_path} can't be read: {error}."
    return f"The checkpoint {checkpoint_path} holds: {_described(shapes)}."


def _described(shapes: dict[str, Any]) -> str:
    return _listed(f"{name} {shape}" for name, shape in sorted(shapes.items()))


def renumbered_layer_hint(missing: Iterable[str], names: Iterable[str]) -> str:
    """The remedy for variables that a checkpoint has under other layer numbers.

    Args:
      missing: names that the checkpoint lacks.
      names: names that it has.

    Returns:
      The remedy for the first of them; "" if no name in the checkpoint differs in layer numbers alone.
    """
    numberless: dict[str, list[str]] = {}
    for name in sorted(names):
        numberless.setdefault(_without_numbers(name), []).append(name)
    for wanted in missing:
        similar = [name for name in numberless.get(_without_numbers(wanted), ()) if name != wanted]
        if similar:
            return (
                f"The checkpoint has {', '.join(similar)}, which differs from {wanted} in the number of the layer "
                "alone. Keras numbers layers without a name in the order in which they are made: make all layers in "
                "the same order each time (of an Estimator, inside the model_fn), or name each layer, as in "
                'tf.keras.layers.Dense(8, name="hidden"). An existing checkpoint is read under its old names by a '
                "layer that has the old name, or by tf.compat.v1.train.init_from_checkpoint, which takes a dictionary "
                "from old names to new ones."
            )
    return ""


def _without_numbers(name: str) -> str:
    """A variable's name without the numbers of the layers: `dense_1_1/bias` and `dense/bias` give the same name."""
    return re.sub(r"(_\d+)+(?=/|$)", "", name)


def _misfit(graph: Any, saver: Any, path: str, reader: Any, shapes: dict[str, Any]) -> _Misfit:
    """Compares a checkpoint with what a saver reads."""
    dtypes = reader.get_variable_to_dtype_map()
    keys = {name: name for name in shapes}
    if is_object_based(shapes):
        keys = {name: key for name, key in tf_saver.object_graph_key_mapping(path).items() if key in shapes}
    missing: dict[str, None] = {}
    different: dict[str, str] = {}
    used = set()
    definition = getattr(saver, "saver_def", None)
    for op in restoring_operations(graph, definition.restore_op_name) if definition else ():
        for wanted in wanted_by(op):
            name = wanted.name
            if name not in keys:
                missing[name] = None
                continue
            key = keys[name]
            used.add(key)
            here, there = wanted.tensor.dtype.base_dtype, dtypes[key].base_dtype
            shape = shape_of_target(op)
            if here != there:
                different[name] = f"{name} is {there.name} there and {here.name} in the model"
            elif not wanted.slice_spec and shape is not None and not shape.is_compatible_with(shapes[key]):
                different[name] = f"{name} has shape {shapes[key]} there and {shape.as_list()} in the model"
    return _Misfit(sorted(missing), list(different.values()), sorted(set(shapes) - used))


def _sentences(path: str, misfit: _Misfit, shapes: dict[str, Any]) -> Iterator[str]:
    yield f"{path} is the checkpoint of another model."
    if misfit.missing:
        lacking = []
        for name in misfit.missing[:_LISTED]:
            nearest = difflib.get_close_matches(name, misfit.unused, 1)
            lacking.append(f"{name} (the nearest is {nearest[0]})" if nearest else name)
        yield f"It lacks: {_listed([*lacking, *misfit.missing[_LISTED:]])}."
    if misfit.different:
        yield f"It differs: {_listed(misfit.different, '; ')}."
    yield f"It holds: {_described(shapes)}."
    hint = renumbered_layer_hint(misfit.missing, misfit.unused)
    if hint:
        yield hint


@contextmanager
def explaining_other_model(graph: Any, saver: Any, path: str, partial: bool = False) -> Iterator[None]:
    """Wraps a restore. If it fails because the checkpoint is another model's, the error begins with what doesn't fit.

    Args:
      graph: the graph of the session.
      saver: the saver that restores.
      path: path of the checkpoint.
      partial: whether the checkpoint may lack names.

    Raises:
      Exception: TensorFlow's error, with a longer message and without the errors that led to it.
    """
    try:
        yield
    except (errors.NotFoundError, errors.InvalidArgumentError) as error:
        try:
            reader, shapes = open_checkpoint(path)
            misfit = _misfit(graph, saver, path, reader, shapes)
        except _UNREADABLE:
            raise error from None  # A server may have other files than this process.
        if partial:
            misfit = misfit._replace(missing=[])
        if not misfit.missing and not misfit.different:
            raise
        # Without the operation: its stack, which is printed too, says nothing of the model.
        explained = type(error)(None, None, f"{' '.join(_sentences(path, misfit, shapes))}\n\n{error.message}")
    else:
        return
    raise explained from None


def warn_of_other_shapes(variables: Iterable[Any], path: str) -> None:
    """Warns of variables that a checkpoint has in other shapes. A resource variable takes these over.

    Args:
      variables: the variables of the model.
      path: path of the checkpoint that was restored.
    """
    try:
        _, shapes = open_checkpoint(path)
    except _UNREADABLE:
        return  # It was restored, by a server that may see other files.
    other = []
    for variable in variables:
        saved = shapes.get(variable.op.name)
        is_part = getattr(variable, "_save_slice_info", None) is not None
        if saved is not None and not is_part and not variable.shape.is_compatible_with(saved):
            other.append(f"{variable.op.name} is {variable.shape} in the model and {tuple(saved)} there")
    if other:
        more = f"; and {len(other) - _LISTED_SHAPES} more" if len(other) > _LISTED_SHAPES else ""
        logging.warning(
            "%s has variables of other shapes, which are used: %s%s. Is it the checkpoint of another model? See "
            "`python -m fastsup docs recovery#damage-or-a-mistake-in-the-program`.",
            path,
            "; ".join(other[:_LISTED_SHAPES]),
            more,
        )
