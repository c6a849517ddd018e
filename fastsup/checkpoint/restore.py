"""Restores the newest intact checkpoint, completely or partially. Reports damaged ones and those of another model."""

from __future__ import annotations

import difflib
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from tensorflow.python.framework import dtypes, errors, tensor_shape, tensor_util
from tensorflow.python.lib.io import file_io
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import saver as tf_saver

from fastsup.checkpoint.directory import (
    MISSING,
    STATE_FILE,
    Listing,
    damage_of,
    is_in,
    is_object_based,
    is_unfinished,
    latest_intact_checkpoint,
    list_checkpoints,
    note_state,
    open_checkpoint,
    step_of,
)
from fastsup.common.errors import NoIntactCheckpointError as AnyNoIntactCheckpointError
from fastsup.common.errors import is_read_failure

__all__ = [
    "CheckpointRestorer",
    "NoIntactCheckpointError",
    "describe_variables",
    "explaining_other_model",
    "renumbered_layer_hint",
    "restore_partially",
    "restoring_operations",
    "shape_of_target",
    "wanted_by",
    "warn_of_other_shapes",
]


class NoIntactCheckpointError(errors.DataLossError, AnyNoIntactCheckpointError):  # type: ignore[misc]
    """Raised if there are checkpoints and each of them is damaged or incomplete.

    It is also a ValueError, which TensorFlow raises for a checkpoint whose files are missing, and a RuntimeError, which
    `StepLoop` raises if it can't start.

    Args:
      place: path of the directory or of the checkpoint to restore.
      failures: list of (path, cause), one for each checkpoint that was tried.
      intact: path of an intact checkpoint that wasn't tried, or None.
    """

    def __init__(self, place: str, failures: list[tuple[str, str]], intact: str | None = None) -> None:
        self.failures: list[tuple[str, str]] = list(failures)
        self.intact: str | None = intact
        self._place = place
        if [path for path, _ in failures] == [place]:
            message = f"{place} can't be restored, and is left unchanged: {failures[0][1]}."
        else:
            lines = "".join(f"\n  {path}: {cause}" for path, cause in failures)
            message = f"No checkpoint of {place} can be restored; each was tried:{lines}\nThey are unchanged."
        remedy = (
            "Copy an intact checkpoint there, or start training in an empty directory."
            if intact is None
            else f"{intact} is intact: pass it as the path of the checkpoint, or train, which resumes from it."
        )
        super().__init__(None, None, f"{message} {remedy}")

    def __reduce__(self) -> Any:
        return type(self), (self._place, self.failures, self.intact)


class CheckpointRestorer:
    """Restores a model from the newest intact checkpoint.

    It can be called again while a program waits for a checkpoint. It warns about each damaged checkpoint once.

    Args:
      restore: function of a path that restores a checkpoint.
      prepare: function without arguments, called before each `restore`. Its errors aren't treated as damage.
    """

    def __init__(self, restore: Callable[[str], None], prepare: Callable[[], None]) -> None:
        self._restore = restore
        self._prepare = prepare
        self._warnings: set[str] = set()

    def _warn(self, text: str) -> None:
        if text not in self._warnings:
            self._warnings.add(text)
            logging.warning("%s See `python -m fastsup docs recovery`.", text)

    def _restore_or_explain(self, path: str) -> str | None:
        """Restores a checkpoint. Returns None, or the damage that prevents it. Raises an error for a user's mistake."""
        self._prepare()
        try:
            self._restore(path)
        except (errors.OpError, ValueError, IndexError, RuntimeError, DecodeError) as error:
            if is_read_failure(error):
                raise
            # Reading the whole checkpoint distinguishes damage from a mistake in the program. It is slow, so it is done
            # only after failures.
            cause = damage_of(path)
            if cause is None and isinstance(error, (errors.DataLossError, errors.OutOfRangeError)):
                # The server that restores may see different files than this process.
                cause = " ".join(str(error).split())
            if cause is None:
                raise
            return cause
        return None

    def restore_checkpoint(self, path: str) -> None:
        """Restores one checkpoint."""
        cause = self._restore_or_explain(path)
        if cause is not None and file_io.is_directory(path) and not file_io.file_exists(path + ".index"):
            example = latest_intact_checkpoint(path) or os.path.join(path, "model.ckpt-N")
            raise ValueError(
                f"The passed save_path is not a valid checkpoint: {path} is a directory. Pass the path of a checkpoint "
                f"in it, such as {example}."
            )
        if cause == MISSING:
            raise ValueError(f"The passed save_path is not a valid checkpoint: {path}")
        if cause is not None:
            raise NoIntactCheckpointError(path, [(path, cause)], latest_intact_checkpoint(os.path.dirname(path) or "."))

    def restore_newest(self, directory: Any, expects_writer: bool = False) -> tuple[str, list[str]] | None:
        """Restores the newest intact checkpoint of a directory.

        Args:
          directory: path of the directory.
          expects_writer: Whether another process is expected to write the first checkpoint. Damage then isn't an error
            as long as the state file names no checkpoint.

        Returns:
          (path, rotation): the path of the restored checkpoint, and the paths of the checkpoints that the saver may
          delete later, oldest first. None if no checkpoint was ever saved completely.

        Raises:
          NoIntactCheckpointError: If there are checkpoints but none is intact.
          Exception: The saver's error for a checkpoint that doesn't match the model.
        """
        note_state(os.path.join(os.fspath(directory), STATE_FILE))
        return self.restore_first(list_checkpoints(directory), os.fspath(directory), expects_writer)

    def restore_first(self, listing: Listing, place: str, expects_writer: bool = False) -> tuple[str, list[str]] | None:
        """Restores the first intact checkpoint in a list."""
        paths = listing.paths
        waiting = expects_writer and not listing.named
        if waiting:
            # Another process may be writing such a checkpoint now.
            paths = [path for path in paths if not is_unfinished(path)]
            if not paths:
                return None
        for remark in listing.remarks:
            self._warn(remark + ".")
        failures: list[tuple[str, str]] = []
        for path, older in itertools.zip_longest(paths, paths[1:]):
            cause = self._restore_or_explain(path)
            if cause is None:
                unfinished = [other for other in paths if other not in _tried(failures) and is_unfinished(other)]
                self._warn_of_interrupted([*unfinished, *listing.interrupted], step_of(path))
                return path, _rotation(listing, path, _tried(failures), place)
            failures.append((path, cause))
            what_now = "" if older is None else f" {os.path.basename(older)} is tried instead."
            self._warn(f"The checkpoint {path} can't be restored and is left unchanged: {cause}.{what_now}")
        if waiting:
            return None
        self._warn_of_interrupted(listing.interrupted, None)
        if not failures:
            return None
        if listing.in_first_save or (not listing.named and len(failures) == 1 and is_unfinished(failures[0][0])):
            # No state file has ever named a checkpoint in this directory.
            self._warn(f"{failures[0][0]} belongs to the first save, which never finished: nothing had been saved yet.")
            return None
        raise NoIntactCheckpointError(place, failures)

    def _warn_of_interrupted(self, interrupted: list[str], restored_step: int | None) -> None:
        for path in interrupted:
            step = step_of(path)
            if restored_step is None or (step is not None and step > restored_step):
                self._warn(
                    f"{path} isn't used: it has no complete index, so its save was interrupted or is still running."
                )


def _tried(failures: list[tuple[str, str]]) -> set[str]:
    """Returns the paths of the checkpoints that failed."""
    return {path for path, _ in failures}


def _rotation(listing: Listing, restored: str, damaged: set[str], directory: str) -> list[str]:
    """Returns the checkpoints that a saver may delete later, without those that are damaged or in another directory."""
    kept = [path for path in listing.rotation if path not in damaged]
    return kept if restored in kept or not is_in(restored, directory) else [*kept, restored]


# Maximum size of the values that one run feeds. If a run fails because of a shape, its operations run one by one.
_BYTES_PER_RUN = 1 << 28


class _Wanted(NamedTuple):
    """A tensor that a saver reads.

    Args:
      tensor: output of the restore operation.
      name: name of the tensor in the checkpoint.
      slice_spec: the slice of that tensor, such as "10 4 0,5:-", or "" for the whole tensor.
    """

    tensor: Any
    name: str
    slice_spec: str


def restoring_operations(graph: Any, restore_op_name: str) -> Iterator[Any]:
    """Yields the operations that set one variable or table each, without the operations that group them."""
    waiting = [graph.get_operation_by_name(restore_op_name)]
    seen = set()
    while waiting:
        op = waiting.pop()
        if op in seen:
            continue
        seen.add(op)
        if op.type == "NoOp":
            waiting.extend(reversed(op.control_inputs))
        else:
            yield op


def wanted_by(op: Any) -> list[_Wanted]:
    """Returns the tensors that a restoring operation reads from a checkpoint."""
    wanted, waiting, seen = [], list(op.inputs), set()
    while waiting:
        tensor = waiting.pop()
        if tensor.ref() in seen:
            continue
        seen.add(tensor.ref())
        if tensor.op.type == "RestoreV2":
            names, slices = (tensor_util.constant_value(tensor.op.inputs[n]) for n in (1, 2))
            if names is None or slices is None:
                raise ValueError(
                    f'restore="partial" requires a saver whose names are constants, got {tensor.op.name!r}.'
                )
            at = tensor.value_index
            wanted.append(_Wanted(tensor, names[at].decode(), slices[at].decode()))
        else:
            waiting.extend(tensor.op.inputs)
    return wanted


def _sliced(value: Any, wanted: _Wanted) -> Any:
    """Returns a partitioned variable's slice of a tensor: "10 4 0,5:-" means rows 0 to 4 of a 10 x 4 tensor."""
    if not wanted.slice_spec:
        return value
    *shape, extents = wanted.slice_spec.split(" ")
    if [int(size) for size in shape] != list(value.shape):
        raise _mismatch(f"{wanted.name} has shape {list(value.shape)} in the checkpoint, [{', '.join(shape)}] here")
    parts = []
    for extent in extents.split(":"):
        if extent == "-":
            parts.append(slice(None))
        else:
            start, length = (int(number) for number in extent.split(","))
            parts.append(slice(start, start + length))
    return value[tuple(parts)]


def _mismatch(difference: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(
        None,
        None,
        "Restoring from checkpoint failed. This is most likely due to a mismatch between the current graph and the "
        f"graph from the checkpoint: {difference}. A partial restore skips missing tensors, but not different ones.",
    )


def shape_of_target(op: Any) -> Any:
    """Returns the shape of the variable that an operation sets, or None if it is unknown or values are reshaped."""
    if op.type not in ("Assign", "AssignVariableOp"):
        return None
    value = op.inputs[1]
    while value.op.type == "Identity":
        value = value.op.inputs[0]
    if value.op.type != "RestoreV2":
        return None
    if op.type == "Assign":
        return op.inputs[0].shape
    handle = op.inputs[0].op
    return tensor_shape.TensorShape(handle.get_attr("shape")) if handle.type == "VarHandleOp" else None


def _check_shape(op: Any, name: str, value: Any) -> None:
    # TensorFlow doesn't check the shape when it assigns to a resource variable.
    shape = shape_of_target(op)
    if shape is not None and not shape.is_compatible_with(np.shape(value)):
        raise _mismatch(f"{name} has shape {list(np.shape(value))} in the checkpoint, {shape.as_list()} here")


class _Source:
    """The tensors of a checkpoint, by the names that a saver uses."""

    def __init__(self, path: str) -> None:
        self._reader, shapes = open_checkpoint(path)
        self._dtypes = self._reader.get_variable_to_dtype_map()
        keys = {name: name for name in shapes}
        if is_object_based(shapes):
            # tf.train.Checkpoint names tensors after objects, and stores the variables' names in the object graph.
            keys = tf_saver.object_graph_key_mapping(path)
        self.keys = {name: key for name, key in keys.items() if key in shapes}

    def value_of(self, wanted: _Wanted) -> Any:
        key = self.keys[wanted.name]
        try:
            value = self._reader.get_tensor(key)
        except (IndexError, RuntimeError) as error:
            # The reader raises these errors for a file that is too short.
            raise errors.DataLossError(None, None, f"{key}: {error}") from error
        # An array of quantized numbers has lost its type.
        saved = self._dtypes.get(key) or dtypes.as_dtype(np.asarray(value).dtype)
        here = wanted.tensor.dtype.base_dtype
        if saved != here:
            raise _mismatch(f"{wanted.name} is {saved.name} in the checkpoint, {here.name} here")
        return _sliced(value, wanted)


def _run(session: Any, batch: list[tuple[Any, dict[Any, Any], list[str]]]) -> None:
    """Runs restoring operations, with feeds for the values that they would read."""
    try:
        values = {tensor: value for _, feeds, _ in batch for tensor, value in feeds.items()}
        session.run([op for op, _, _ in batch], values)
    except errors.InvalidArgumentError as error:
        if len(batch) == 1:
            _, feeds, names = batch[0]
            shapes = ", ".join(str(list(np.shape(value))) for value in feeds.values())
            raise _mismatch(f"{', '.join(names)}, of shape {shapes} in the checkpoint ({error.message})") from error
        for operation in batch:
            _run(session, [operation])


def restore_partially(session: Any, saver: Any, path: str) -> None:
    """Restores the tensors that a checkpoint has and a saver wants.

    The other variables keep their values, and the log lists them. This runs the saver's own operations with fed values,
    so the graph doesn't change and may be finalized.
    """
    source = _Source(path)
    missing: list[str] = []
    used: set[str] = set()
    batch: list[tuple[Any, dict[Any, Any], list[str]]] = []
    size = 0
    logging.info("Restoring parameters from %s", path)
    definition = saver.saver_def
    # The saver of a model without variables has no operations.
    operations = restoring_operations(session.graph, definition.restore_op_name) if definition else ()
    for op in operations:
        wanted = wanted_by(op)
        names = sorted({tensor.name for tensor in wanted})
        used.update(source.keys[name] for name in names if name in source.keys)
        if not set(names) <= set(source.keys):
            missing += [name for name in names if name not in source.keys]
            continue
        feeds = {tensor.tensor: source.value_of(tensor) for tensor in wanted}
        if len(wanted) == 1:
            _check_shape(op, names[0], *feeds.values())
        batch.append((op, feeds, names))
        size += sum(np.asarray(value).nbytes for value in feeds.values())
        if size > _BYTES_PER_RUN:
            _run(session, batch)
            batch, size = [], 0
    if batch:
        _run(session, batch)
    extra = sorted(set(source.keys.values()) - used)
    if missing:
        logging.warning("Not in the checkpoint %s, so not restored from it: %s", path, ", ".join(sorted(set(missing))))
    if extra:
        logging.info("In the checkpoint %s, and not in the model: %s", path, ", ".join(extra))


# Maximum number of listed names.
_LISTED = 20
_LISTED_SHAPES = 5
# The types of a reader's errors.
_UNREADABLE = (errors.OpError, RuntimeError, ValueError, IndexError)


class _Misfit(NamedTuple):
    """Tensors that a model requires and a checkpoint lacks.

    Args:
      missing: names that the checkpoint lacks.
      different: the differences, one clause per name.
      unused: names in the checkpoint that the model doesn't use.
    """

    missing: list[str]
    different: list[str]
    unused: list[str]


def _listed(texts: Iterable[str], separator: str = ", ") -> str:
    found = list(texts)
    more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    return separator.join(found[:_LISTED]) + more


def describe_variables(checkpoint_path: Any) -> str:
    """Describes the variables of a checkpoint with their shapes, the first 20 by name, in one sentence."""
    try:
        _, shapes = open_checkpoint(checkpoint_path)
    except _UNREADABLE as error:
        return f"The checkpoint {checkpoint_path} can't be read: {error}."
    return f"The checkpoint {checkpoint_path} contains: {_described(shapes)}."


def _described(shapes: dict[str, Any]) -> str:
    return _listed(f"{name} {shape}" for name, shape in sorted(shapes.items()))


def renumbered_layer_hint(missing: Iterable[str], names: Iterable[str]) -> str:
    """Returns the remedy for variables that a checkpoint has with other layer numbers.

    Args:
      missing: names that the checkpoint lacks.
      names: names in the checkpoint.

    Returns:
      The remedy for the first of them, or "" if no name in the checkpoint differs only in layer numbers.
    """
    numberless: dict[str, list[str]] = {}
    for name in sorted(names):
        numberless.setdefault(_without_numbers(name), []).append(name)
    for wanted in missing:
        similar = [name for name in numberless.get(_without_numbers(wanted), ()) if name != wanted]
        if similar:
            return (
                f"The checkpoint has {', '.join(similar)}, which differs from {wanted} only in the layer's number. "
                "Keras numbers unnamed layers in the order of their creation: create all layers in the same order "
                "each time (in an Estimator, inside the model_fn), or name each layer, as in "
                'tf.keras.layers.Dense(8, name="hidden"). To read an existing checkpoint, give the '
                "layer its old name, or use tf.compat.v1.train.init_from_checkpoint, which takes a dictionary "
                "from old names to new ones."
            )
    return ""


def _without_numbers(name: str) -> str:
    """Returns a variable's name without layer numbers. `dense_1_1/bias` and `dense/bias` give the same name."""
    return re.sub(r"(_\d+)+(?=/|$)", "", name)


def _misfit(graph: Any, saver: Any, path: str, reader: Any, shapes: dict[str, Any]) -> _Misfit:
    """Compares a checkpoint with the tensors that a saver reads."""
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
                different[name] = f"{name} is {there.name} in the checkpoint and {here.name} in the model"
            elif not wanted.slice_spec and shape is not None and not shape.is_compatible_with(shapes[key]):
                different[name] = f"{name} has shape {shapes[key]} in the checkpoint and {shape.as_list()} in the model"
    return _Misfit(sorted(missing), list(different.values()), sorted(set(shapes) - used))


def _sentences(path: str, misfit: _Misfit, shapes: dict[str, Any]) -> Iterator[str]:
    yield f"{path} is the checkpoint of another model."
    if misfit.missing:
        lacking = []
        for name in misfit.missing[:_LISTED]:
            spelled = {other.lower(): other for other in misfit.unused}
            nearest = [spelled[other] for other in difflib.get_close_matches(name.lower(), spelled, 1)]
            lacking.append(f"{name} (the nearest is {nearest[0]})" if nearest else name)
        yield f"It lacks: {_listed([*lacking, *misfit.missing[_LISTED:]])}."
    if misfit.different:
        yield f"It differs: {_listed(misfit.different, '; ')}."
    yield f"It contains: {_described(shapes)}."
    hint = renumbered_layer_hint(misfit.missing, misfit.unused)
    if hint:
        yield hint


@contextmanager
def explaining_other_model(graph: Any, saver: Any, path: str, partial: bool = False) -> Iterator[None]:
    """Wraps a restore. If the checkpoint belongs to another model, the error starts with the mismatches."""
    try:
        yield
    except (errors.NotFoundError, errors.InvalidArgumentError) as error:
        try:
            reader, shapes = open_checkpoint(path)
            misfit = _misfit(graph, saver, path, reader, shapes)
        except _UNREADABLE:
            raise error from None  # A server may have different files than this process.
        if partial:
            misfit = misfit._replace(missing=[])
        if not misfit.missing and not misfit.different:
            raise
        # Leave the operation out of the error, because its printed stack would contain nothing about the model.
        explained = type(error)(None, None, f"{' '.join(_sentences(path, misfit, shapes))}\n\n{error.message}")
    else:
        return
    raise explained from None


def warn_of_other_shapes(variables: Iterable[Any], path: str) -> None:
    """Warns about variables that have other shapes in a checkpoint. A resource variable adopts these shapes."""
    try:
        _, shapes = open_checkpoint(path)
    except _UNREADABLE:
        return  # A server restored the checkpoint, and may see different files.
    other = []
    for variable in variables:
        saved = shapes.get(variable.op.name)
        is_part = getattr(variable, "_save_slice_info", None) is not None
        if saved is not None and not is_part and not variable.shape.is_compatible_with(saved):
            other.append(f"{variable.op.name} is {variable.shape} in the model and {tuple(saved)} in the checkpoint")
    if other:
        more = f"; and {len(other) - _LISTED_SHAPES} more" if len(other) > _LISTED_SHAPES else ""
        logging.warning(
            "%s has variables with other shapes, which are used: %s%s. Is it another model's checkpoint? See "
            "`python -m fastsup docs recovery#damage-or-a-mistake-in-the-program`.",
            path,
            "; ".join(other[:_LISTED_SHAPES]),
            more,
        )
