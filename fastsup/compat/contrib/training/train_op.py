"""Makes the operation of a training step: gradients, updates and the loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tensorflow.python.framework import indexed_slices, ops
from tensorflow.python.ops import array_ops, clip_ops, control_flow_ops, variables
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.summary import summary
from tensorflow.python.training import optimizer as tf_optimizer
from tensorflow.python.training import training_util

__all__ = [
    "add_gradients_summaries",
    "clip_gradient_norms",
    "clip_gradient_norms_fn",
    "create_train_op",
    "multiply_gradients",
]

_Pairs = list[tuple[Any, Any]]
_GLOBAL_STEP_OF_GRAPH = 0


def _with_values(gradient: Any, change: Callable[[Any], Any]) -> Any:
    """A gradient whose values are changed. That of an embedding is a tensor of values and their indices."""
    if isinstance(gradient, indexed_slices.IndexedSlices):
        return indexed_slices.IndexedSlices(change(gradient.values), gradient.indices, gradient.dense_shape)
    return change(gradient)


def add_gradients_summaries(grads_and_vars: Iterable[tuple[Any, Any]]) -> list[Any]:
    """Adds a histogram and the norm of each gradient to the summaries of the graph.

    Args:
      grads_and_vars: pairs of gradient and variable. A gradient may be None.

    Returns:
      The summaries.
    """
    summaries = []
    for gradient, variable in grads_and_vars:
        if gradient is None:
            logging.info("Var %s has no gradient", variable.op.name)
            continue
        values = gradient.values if isinstance(gradient, indexed_slices.IndexedSlices) else gradient
        summaries.append(summary.histogram(f"{variable.op.name}_gradient", values))
        summaries.append(summary.scalar(f"{variable.op.name}_gradient_norm", clip_ops.global_norm([values])))
    return summaries


def clip_gradient_norms(gradients_to_variables: Iterable[tuple[Any, Any]], max_norm: float) -> _Pairs:
    """Clips each gradient to a norm.

    Args:
      gradients_to_variables: pairs of gradient and variable. A gradient may be None.
      max_norm: the largest norm.

    Returns:
      The pairs with clipped gradients.
    """
    return [
        (
            None
            if gradient is None
            else _with_values(gradient, lambda values: clip_ops.clip_by_norm(values, max_norm)),
            variable,
        )
        for gradient, variable in gradients_to_variables
    ]


def clip_gradient_norms_fn(max_norm: float) -> Callable[[Iterable[tuple[Any, Any]]], _Pairs]:
    """A function of pairs that clips their gradients, for `create_train_op`.

    Args:
      max_norm: the largest norm.
    """
    return lambda gradients_to_variables: clip_gradient_norms(gradients_to_variables, max_norm)


def multiply_gradients(grads_and_vars: _Pairs, gradient_multipliers: dict[Any, Any]) -> _Pairs:
    """Multiplies gradients by factors.

    Args:
      grads_and_vars: list of pairs of gradient and variable.
      gradient_multipliers: dictionary from variables, or names of their operations, to factors. Other gradients stay.

    Returns:
      The pairs with multiplied gradients.

    Raises:
      ValueError: an argument is of another type, there is no factor, or a gradient to multiply is None.
    """
    if not isinstance(grads_and_vars, list):
        raise ValueError("`grads_and_vars` must be a list.")
    if not gradient_multipliers:
        raise ValueError("`gradient_multipliers` is empty.")
    if not isinstance(gradient_multipliers, dict):
        raise ValueError("`gradient_multipliers` must be a dict.")
    by_variable = {id(key): factor for key, factor in gradient_multipliers.items() if not isinstance(key, str)}
    by_name = {key: factor for key, factor in gradient_multipliers.items() if isinstance(key, str)}
    multiplied = []
    for gradient, variable in grads_and_vars:
        # By identity: under TensorFlow 2 behaviour a variable has no hash, and `==` compares values.
        factor = by_variable.get(id(variable), by_name.get(variable.op.name))
        if factor is not None:
            if gradient is None:
                raise ValueError("Requested multiple of `None` gradient.")
            tensor = ops.convert_to_tensor(factor, dtype=gradient.dtype)
            gradient = _with_values(gradient, tensor.__rmul__)
        multiplied.append((gradient, variable))
    return multiplied


def _after_updates(loss: Any, update_ops: Iterable[Any] | None) -> Any:
    """The loss, computed after the updates that the layers of the model have asked for."""
    of_graph = set(ops.get_collection(ops.GraphKeys.UPDATE_OPS))
    updates = of_graph if update_ops is None else set(update_ops)
    if not of_graph <= updates:
        logging.warning("update_ops in create_train_op does not contain all the update_ops in GraphKeys.UPDATE_OPS")
    if not updates:
        return loss
    with ops.control_dependencies(updates):
        barrier = control_flow_ops.no_op(name="update_barrier")
    return control_flow_ops.with_dependencies([barrier], loss)


def create_train_op(
    total_loss: Any,
    optimizer: Any,
    global_step: Any = _GLOBAL_STEP_OF_GRAPH,
    update_ops: Iterable[Any] | None = None,
    variables_to_train: Iterable[Any] | None = None,
    transform_grads_fn: Callable[[Any], Any] | None = None,
    summarize_gradients: bool = False,
    gate_gradients: int = tf_optimizer.Optimizer.GATE_OP,
    aggregation_method: Any = None,
    colocate_gradients_with_ops: bool = False,
    check_numerics: bool = True,
) -> Any:
    """Makes a tensor whose run is one step of training and whose value is the loss.

    The other arguments are those of `Optimizer.compute_gradients`.

    Args:
      total_loss: scalar tensor, the loss.
      optimizer: `tf.compat.v1.train.Optimizer`.
      global_step: the global step to count. Defaults to that of the graph, which is created if there is none. None: no
        step is counted.
      update_ops: operations to run before the loss is computed, such as the updates of batch normalisation. None: those
        of the collection UPDATE_OPS.
      variables_to_train: variables to train. None: all that are trainable.
      transform_grads_fn: function of a list of pairs of gradient and variable that returns such a list, or None.
      summarize_gradients: True to add summaries of the gradients.
      check_numerics: True for an error in a step whose loss is infinite or NaN.

    Returns:
      The tensor, which is in the collection TRAIN_OP too.

    Raises:
      AssertionError: no variable is to be trained, or one of `variables_to_train` isn't trainable.
    """
    if global_step is _GLOBAL_STEP_OF_GRAPH:
        global_step = training_util.get_or_create_global_step()
    total_loss = _after_updates(total_loss, update_ops)
    trainable = variables.trainable_variables()
    chosen = trainable if variables_to_train is None else list(variables_to_train)
    for variable in chosen:
        if not (variable.trainable or any(variable is other for other in trainable)):
            raise AssertionError(f"variables_to_train has {variable}, which isn't trainable.")
    if not chosen:
        raise AssertionError("There is no variable to train: the graph, or variables_to_train, has none.")
    gradients = optimizer.compute_gradients(
        total_loss,
        chosen,
        gate_gradients=gate_gradients,
        aggregation_method=aggregation_method,
        colocate_gradients_with_ops=colocate_gradients_with_ops,
    )
    if transform_grads_fn:
        gradients = transform_grads_fn(gradients)
    if summarize_gradients:
        with ops.name_scope("summarize_grads"):
            add_gradients_summaries(gradients)
    updates = optimizer.apply_gradients(gradients, global_step=global_step)
    with ops.name_scope("train_op"):
        if check_numerics:
            total_loss = array_ops.check_numerics(total_loss, "LossTensor is inf or nan")
        train_op = control_flow_ops.with_dependencies([updates], total_loss)
    collected = ops.get_collection_ref(ops.GraphKeys.TRAIN_OP)
    if not any(train_op is other for other in collected):
        collected.append(train_op)
    return train_op
