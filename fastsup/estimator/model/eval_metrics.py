"""The metrics of a model: checks of `eval_metric_ops`, and their values and updates."""

from __future__ import annotations

from typing import Any

from tensorflow.python.framework import ops
from tensorflow.python.ops import control_flow_ops
from tensorflow.python.util import nest

from fastsup.estimator.config.tensorflow_names import v1

__all__ = ["LOSS_METRIC_KEY", "OTHER_GRAPH", "add_loss_metric", "check_metrics", "split_metrics"]

LOSS_METRIC_KEY = "loss"
OTHER_GRAPH = (
    '{0} with "{1}" must be from the default graph. '
    "Possible causes of this error include: \n\n"
    "1) {0} was created outside the context of the default graph."
    "\n\n"
    "2) The object passed through to EstimatorSpec was not created "
    'in the most recent call to "model_fn".'
)

_ASSIGNMENTS = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp", "Assign", "AssignAdd", "AssignSub")


def _is_metric(value: Any) -> bool:
    """True for a metric object of TensorFlow, tf_keras or Keras 3."""
    return any(
        kind.__name__ == "Metric" and kind.__module__.split(".")[0] in ("keras", "tf_keras", "tensorflow")
        for kind in type(value).__mro__
    )


def _backend_variables(metric: Any) -> list[Any]:
    """The TensorFlow variables of a metric. Keras 3 wraps them in its own variables."""
    return [getattr(variable, "value", variable) if _is_keras3(metric) else variable for variable in metric.variables]


def _is_keras3(metric: Any) -> bool:
    return not hasattr(metric, "updates")


def _updates_of(metric: Any) -> list[Any]:
    """The operations of `update_state`. Keras 3 doesn't keep them, so they are the assignments to the variables."""
    if not _is_keras3(metric):
        return list(metric.updates)
    updates = []
    for variable in _backend_variables(metric):
        target = variable.handle if hasattr(variable, "handle") else variable._variable
        updates += [op for op in target.consumers() if op.type in _ASSIGNMENTS and op is not variable.initializer]
    return updates


def _as_pair(metric: Any) -> tuple[Any, Any]:
    """Converts a metric object to (value, update), and makes its variables local ones."""
    updates = _updates_of(metric)
    variables = _backend_variables(metric)
    graph = ops.get_default_graph()
    if _is_keras3(metric):
        # Keras 3 has added its variables to the global ones, which a checkpoint must have.
        model_variables = graph.get_collection_ref(ops.GraphKeys.GLOBAL_VARIABLES)
        ours = {id(variable) for variable in variables}
        model_variables[:] = [variable for variable in model_variables if id(variable) not in ours]
    for name in (ops.GraphKeys.LOCAL_VARIABLES, ops.GraphKeys.METRIC_VARIABLES):
        collection = graph.get_collection_ref(name)
        known = {id(variable) for variable in collection}
        collection += [variable for variable in variables if id(variable) not in known]
    result = metric.result()
    return result, updates[0] if len(updates) == 1 else control_flow_ops.group(*updates)


def check_metrics(eval_metric_ops: Any) -> dict[str, Any]:
    """Checks the metrics of an EstimatorSpec, and converts each to a (value, update) pair.

    Args:
      eval_metric_ops: dictionary from names to (value, update) pairs or metric objects, changed in place; or None.

    Returns:
      The dictionary; an empty one for None.

    Raises:
      TypeError: the argument isn't a dictionary, or a value is neither a pair nor a metric.
      ValueError: a metric was never updated, or isn't of the default graph.
    """
    if eval_metric_ops is None:
        return {}
    if not isinstance(eval_metric_ops, dict):
        raise TypeError(f"eval_metric_ops must be a dict, given: {eval_metric_ops}")
    graph = ops.get_default_graph()
    for key, value in eval_metric_ops.items():
        if _is_metric(value):
            if not _updates_of(value):
                raise ValueError(f'Please call update_state(...) on the "{value.name}" metric')
            parts = _updates_of(value)
        elif not isinstance(value, tuple) or len(value) != 2:
            raise TypeError(
                f"Values of eval_metric_ops must be (metric_value, update_op) tuples, given: {value} for key: {key}"
            )
        else:
            parts = nest.flatten(value)
        for part in parts:
            if not hasattr(part, "graph"):
                raise TypeError(
                    "Values of eval_metric_ops must be (metric_value, update_op) tuples of tensors or operations, "
                    f"given: {value} for key: {key}"
                )
            if part.graph is not graph:
                raise ValueError(OTHER_GRAPH.format("eval_metric_ops", f"{key}: {part.name}"))
    for key, value in eval_metric_ops.items():
        if _is_metric(value):
            eval_metric_ops[key] = _as_pair(value)
    return eval_metric_ops


def add_loss_metric(eval_metric_ops: dict[str, Any], loss: Any, distribution: Any = None) -> dict[str, Any]:
    """Adds the mean of the loss to the metrics.

    Args:
      eval_metric_ops: dictionary of the metrics, changed in place.
      loss: the loss of a batch.
      distribution: strategy of the evaluation, or None.

    Returns:
      The dictionary.

    Raises:
      ValueError: there is a metric named "loss".
    """
    if LOSS_METRIC_KEY in eval_metric_ops:
        raise ValueError(
            f'Metric with name "{LOSS_METRIC_KEY}" is not allowed, because Estimator already defines a default '
            "metric with the same name."
        )
    if distribution is None:
        eval_metric_ops[LOSS_METRIC_KEY] = v1.metrics.mean(loss)
    else:
        eval_metric_ops[LOSS_METRIC_KEY] = distribution.extended.call_for_each_replica(v1.metrics.mean, args=(loss,))
    return eval_metric_ops


def split_metrics(eval_metric_ops: dict[str, Any], distribution: Any = None) -> tuple[Any, dict[str, Any]]:
    """Separates the updates of the metrics from their values.

    Args:
      eval_metric_ops: dictionary from names to (value, update) pairs.
      distribution: strategy of the evaluation, or None.

    Returns:
      The operation that updates all metrics, or None if there are none; and a dictionary from names to values.
    """
    # Sorted, so that the same model always has the same graph.
    named = sorted(eval_metric_ops.items())
    updates = [distribution.group(value[1]) if distribution else value[1] for _, value in named]
    values = {name: value[0] for name, value in named}
    return (control_flow_ops.group(*updates) if updates else None), values
