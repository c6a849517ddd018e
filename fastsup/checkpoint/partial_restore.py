"""Partial restore: restores the tensors that a checkpoint has, though it lacks others that the model wants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from tensorflow.python.framework import dtypes, errors, tensor_shape, tensor_util
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import saver as tf_saver

from fastsup.checkpoint.index import is_object_based, open_checkpoint

__all__ = ["restore_partially", "restoring_operations", "shape_of_target", "wanted_by"]

# Size of the values that one run feeds. If a run fails because of a shape, its operations are run one by one.
_BYTES_PER_RUN = 1 << 28


class _Wanted(NamedTuple):
    """A tensor that a saver reads.

    Args:
      tensor: output of the restore operation.
      name: name of the tensor in the checkpoint.
      slice_spec: the slice of that tensor, as in "10 4 0,5:-"; empty for the whole tensor.
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
                raise ValueError(f'restore="partial" needs a saver whose names are constants, got {tensor.op.name!r}.')
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
    """Returns the shape of the variable that an operation sets; None if it is unknown, or if values are reshaped."""
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
            # The reader's errors for a file that is too short.
            raise errors.DataLossError(None, None, f"{key}: {error}") from error
        # An array of quantized numbers has lost their type.
        saved = self._dtypes.get(key) or dtypes.as_dtype(np.asarray(value).dtype)
        here = wanted.tensor.dtype.base_dtype
        if saved != here:
            raise _mismatch(f"{wanted.name} is {saved.name} in the checkpoint, {here.name} here")
        return _sliced(value, wanted)


def _run(session: Any, batch: list[tuple[Any, dict[Any, Any], list[str]]]) -> None:
    """Runs restoring operations, fed with the values that they would read."""
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

    The other variables keep their values; the log lists them. The saver's own operations are run, fed with the values,
    so the graph doesn't change and may be finalised.

    Args:
      session: a session of the graph.
      saver: the `tf.compat.v1.train.Saver`, built.
      path: the checkpoint's path.

    Raises:
      tf.errors.InvalidArgumentError: a tensor has another shape or type in the checkpoint.
      tf.errors.OpError: the checkpoint can't be read.
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
