"""The results of a model_fn (EstimatorSpec, TPUEstimatorSpec), and the checks of a model_fn and its metrics."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any, NamedTuple

from tensorflow.python.framework import ops, tensor_shape
from tensorflow.python.ops import array_ops, control_flow_ops, summary_ops_v2, variables
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.saved_model import model_utils
from tensorflow.python.saved_model.model_utils.mode_keys import EstimatorModeKeys
from tensorflow.python.training import session_run_hook
from tensorflow.python.training.monitored_session import Scaffold
from tensorflow.python.types import core
from tensorflow.python.util import function_utils, nest, tf_inspect

from fastsup.estimator.config.tensorflow_names import v1
from fastsup.estimator.model.argument_checks import check_hooks

__all__ = [
    "LOSS_METRIC_KEY",
    "OTHER_GRAPH",
    "EstimatorSpec",
    "ModeKeys",
    "TPUEstimatorSpec",
    "add_loss_metric",
    "call_logit_fn",
    "check_metrics",
    "check_mode",
    "split_metrics",
    "verify_model_fn_args",
]

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
    """Returns True for a metric object of TensorFlow, tf_keras or Keras 3."""
    return any(
        kind.__name__ == "Metric" and kind.__module__.split(".")[0] in ("keras", "tf_keras", "tensorflow")
        for kind in type(value).__mro__
    )


def _backend_variables(metric: Any) -> list[Any]:
    """Returns the TensorFlow variables of a metric. Keras 3 wraps them in its own variables."""
    return [getattr(variable, "value", variable) if _is_keras3(metric) else variable for variable in metric.variables]


def _is_keras3(metric: Any) -> bool:
    return not hasattr(metric, "updates")


def _updates_of(metric: Any) -> list[Any]:
    """Returns the operations of `update_state`. Keras 3 doesn't keep them, so these are the variables' assignments."""
    if not _is_keras3(metric):
        return list(metric.updates)
    updates = []
    for variable in _backend_variables(metric):
        target = variable.handle if hasattr(variable, "handle") else variable._variable
        updates += [op for op in target.consumers() if op.type in _ASSIGNMENTS and op is not variable.initializer]
    return updates


def _as_pair(metric: Any) -> tuple[Any, Any]:
    """Converts a metric object to (value, update), and makes its variables local."""
    updates = _updates_of(metric)
    variables = _backend_variables(metric)
    graph = ops.get_default_graph()
    if _is_keras3(metric):
        # Keras 3 added its variables to the global ones, which a checkpoint must contain.
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
    """Checks the metrics of an EstimatorSpec, and converts each of them to a (value, update) pair in place."""
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
    """Adds the mean loss to the metrics in place."""
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
    """Returns the operation that updates all metrics (or None if there are none), and their values by name."""
    # Sorted, so that the same model always has the same graph.
    named = sorted(eval_metric_ops.items())
    updates = [distribution.group(value[1]) if distribution else value[1] for _, value in named]
    values = {name: value[0] for name, value in named}
    return (control_flow_ops.group(*updates) if updates else None), values


ModeKeys: Any = EstimatorModeKeys

_MODEL_FN_ARGS = {"features", "labels", "mode", "params", "self", "config"}


def _check_tensor(value: Any, name: str) -> Any:
    if not isinstance(value, core.Tensor):
        raise TypeError(f"{name} must be Tensor, given: {value}")
    return value


def _check_graph(value: Any, what: str, name: str) -> None:
    if value.graph is not ops.get_default_graph():
        raise ValueError(OTHER_GRAPH.format(what, name))


def _checked_train_op(train_op: Any, mode: str) -> Any:
    if train_op is None:
        if mode == ModeKeys.TRAIN:
            raise ValueError("Missing train_op.")
        return None
    if not isinstance(train_op, ops.Operation | core.Tensor):
        raise TypeError(f"train_op must be Operation or Tensor, given: {train_op}")
    if not hasattr(train_op, "graph"):
        raise TypeError(
            f"train_op must be Operation or Tensor, given: {train_op}, a Keras 3 variable. Keras 3 optimizers create "
            "no training operation in a graph. Use tf.compat.v1.train.AdamOptimizer or another optimizer in that "
            "module, or Keras 2. See `python -m fastsup docs estimator#keras-layers-in-a-model_fn`."
        )
    if isinstance(train_op, variables.Variable):
        train_op = train_op.op
    _check_graph(train_op, "train_op", train_op.name)
    return train_op


def _checked_loss(loss: Any, mode: str) -> Any:
    if loss is None:
        if mode in (ModeKeys.TRAIN, ModeKeys.EVAL):
            raise ValueError("Missing loss.")
        return None
    shape = _check_tensor(loss, "loss").get_shape()
    if shape.num_elements() not in (None, 1):
        raise ValueError(f"Loss must be scalar, given: {loss}")
    if not shape.is_compatible_with(tensor_shape.TensorShape([])):
        loss = array_ops.reshape(loss, [])
    _check_graph(loss, "loss", loss.name)
    return loss


def _checked_predictions(predictions: Any, mode: str) -> Any:
    if predictions is None:
        if mode == ModeKeys.PREDICT:
            raise ValueError("Missing predictions.")
        return {}
    if not isinstance(predictions, dict):
        _check_tensor(predictions, "predictions")
        _check_graph(predictions, "prediction values", predictions.name)
        return predictions
    for key, value in predictions.items():
        _check_tensor(value, f"predictions[{key}]")
    for key, value in predictions.items():
        _check_graph(value, "prediction values", f"{key}: {value.name}")
    return dict(predictions)


def _checked_hooks(name: str, hooks: Any) -> tuple[Any, ...]:
    return tuple(check_hooks(hooks, name, "All hooks must be SessionRunHook instances, given: {value}{hint}"))


def _checked_scaffold(scaffold: Any) -> Any:
    scaffold = scaffold or v1.train.Scaffold()
    if not isinstance(scaffold, (Scaffold, v1.train.Scaffold)):
        raise TypeError(f"scaffold must be tf.train.Scaffold. Given: {scaffold}")
    return scaffold


class _Fields(NamedTuple):
    mode: str
    predictions: Any
    loss: Any
    train_op: Any
    eval_metric_ops: dict[str, Any]
    export_outputs: dict[str, Any] | None
    training_chief_hooks: tuple[Any, ...]
    training_hooks: tuple[Any, ...]
    scaffold: Any
    evaluation_hooks: tuple[Any, ...]
    prediction_hooks: tuple[Any, ...]


class EstimatorSpec(_Fields):
    """The operations of a model in one mode, with their hooks and scaffold. This is the return value of a model_fn.

    Training requires `loss` and `train_op`, evaluation requires `loss`, and prediction requires `predictions`. The
    other fields are optional in every mode.

    Args:
      mode: one of `ModeKeys`.
      predictions: tensor, or dictionary of tensors.
      loss: loss of a batch, a tensor with one element.
      train_op: operation that runs one training step.
      eval_metric_ops: dictionary from names to metric objects or (value, update) pairs.
      export_outputs: dictionary from names of signatures to `export.ExportOutput`. Defaults to one
        `export.PredictOutput` of the predictions.
      training_chief_hooks: hooks of the chief, in training.
      training_hooks: hooks of every task that trains.
      scaffold: `Scaffold` with the operations that initialize the model. Defaults to a scaffold created from the graph.
      evaluation_hooks: hooks in evaluation.
      prediction_hooks: hooks in prediction.

    Raises:
      ValueError: If a field that the mode requires is missing, a tensor isn't in the default graph, or the loss has
        several elements.
      TypeError: If an argument has the wrong type.
    """

    __slots__ = ()

    def __new__(
        cls,
        mode: str,
        predictions: Any = None,
        loss: Any = None,
        train_op: Any = None,
        eval_metric_ops: Any = None,
        export_outputs: Any = None,
        training_chief_hooks: Any = None,
        training_hooks: Any = None,
        scaffold: Any = None,
        evaluation_hooks: Any = None,
        prediction_hooks: Any = None,
    ) -> Any:
        train_op = _checked_train_op(train_op, mode)
        loss = _checked_loss(loss, mode)
        predictions = _checked_predictions(predictions, mode)
        if mode == ModeKeys.PREDICT:
            export_outputs = model_utils.get_export_outputs(export_outputs, predictions)
        return super().__new__(
            cls,
            mode=mode,
            predictions=predictions,
            loss=loss,
            train_op=train_op,
            export_outputs=export_outputs,
            training_hooks=_checked_hooks("training_hooks", training_hooks),
            evaluation_hooks=_checked_hooks("evaluation_hooks", evaluation_hooks),
            prediction_hooks=_checked_hooks("prediction_hooks", prediction_hooks),
            training_chief_hooks=_checked_hooks("training_chief_hooks", training_chief_hooks),
            eval_metric_ops=check_metrics(eval_metric_ops),
            scaffold=_checked_scaffold(scaffold),
        )

    def _replace(self, **kwds: Any) -> Any:
        """Returns a copy with new values for some fields, and checks all fields again."""
        if "mode" in kwds and kwds["mode"] != self.mode:
            raise ValueError("mode of EstimatorSpec cannot be changed.")
        unknown = sorted(set(kwds) - set(self._fields))
        if unknown:
            raise ValueError(f"Got unexpected field names: {unknown}")
        return EstimatorSpec(**{**self._asdict(), **kwds})


# The fields that each mode requires. The constructor has checked the fields for the spec's own mode.
_REQUIRED_FIELDS = {
    ModeKeys.TRAIN: ("loss", "train_op"),
    ModeKeys.EVAL: ("loss",),
    ModeKeys.PREDICT: ("predictions",),
}


def check_mode(spec: Any, mode: str) -> None:
    """Rejects a spec that lacks a field required by the mode of the call. The spec may have another mode."""
    if spec.mode == mode:
        return
    for name in _REQUIRED_FIELDS.get(mode, ()):
        value = getattr(spec, name)
        if value is None or (isinstance(value, dict) and not value):
            raise ValueError(
                f"Missing {name}. model_fn was called with mode={mode!r}, and returned an EstimatorSpec of "
                f"mode={spec.mode!r}: pass it the mode of the call."
            )


def verify_model_fn_args(model_fn: Callable[..., Any], params: Any) -> None:
    """Rejects a model_fn that an Estimator can't call.

    Args:
      model_fn: the function.
      params: the hyperparameters of the Estimator, or None.

    Raises:
      ValueError: If the function has no argument `features`, has no argument `params` although there are some, or has
        an argument that an Estimator doesn't pass.
    """
    args = set(function_utils.fn_args(model_fn))
    if "features" not in args:
        raise ValueError(f"model_fn ({model_fn}) must include features argument.")
    if params is not None and "params" not in args:
        raise ValueError(
            f"model_fn ({model_fn}) does not include params argument, but params ({params}) is passed to Estimator."
        )
    if params is None and "params" in args:
        logging.warning(
            "Estimator's model_fn (%s) includes params argument, but params are not passed to Estimator.", model_fn
        )
    if isinstance(params, str | bytes | numbers.Number):
        logging.warning(
            "Estimator's params should be a dictionary of hyperparameters, got %r. model_fn gets the value unchanged. "
            'If model_fn reads params["name"], pass params={"name": %r}.',
            params,
            params,
        )
    others = list(args - _MODEL_FN_ARGS)
    if others:
        raise ValueError(f"model_fn ({model_fn}) has following not expected args: {others}")


def call_logit_fn(logit_fn: Callable[..., Any], features: Any, mode: str, params: Any, config: Any) -> Any:
    """Calls a logit_fn with the arguments that it accepts.

    Args:
      logit_fn: function of `features` and any of `mode`, `params` and `config`.
      features: the features.
      mode: one of `ModeKeys`.
      params: the hyperparameters.
      config: the `RunConfig`.

    Returns:
      The logits: a tensor, or a dictionary from strings to tensors.

    Raises:
      ValueError: If the function returns something else.
    """
    taken = function_utils.fn_args(logit_fn)
    optional = {"mode": mode, "params": params, "config": config}
    logits = logit_fn(features=features, **{name: value for name, value in optional.items() if name in taken})
    of_tensors = isinstance(logits, dict) and all(
        isinstance(name, str) and isinstance(value, core.Tensor) for name, value in logits.items()
    )
    if not (of_tensors or isinstance(logits, core.Tensor)):
        raise ValueError(
            f"logit_fn should return a Tensor or a dictionary mapping strings to Tensors.  logit_fn returned: {logits}"
        )
    return logits


class _TPUEstimatorSpec(NamedTuple):
    mode: str
    predictions: Any
    loss: Any
    train_op: Any
    eval_metrics: Any
    export_outputs: Any
    scaffold_fn: Callable[[], Any] | None
    host_call: Any
    training_hooks: tuple[Any, ...]
    evaluation_hooks: tuple[Any, ...]
    prediction_hooks: tuple[Any, ...]


class _HostCallHook(session_run_hook.SessionRunHook):  # type: ignore[misc]
    """Runs the operations that a host_call returned, in each step."""

    def __init__(self, tensors: Any) -> None:
        self._tensors = tensors

    def begin(self) -> None:
        self._writers = summary_ops_v2.summary_writer_initializer_op()
        self._flushes = [summary_ops_v2.legacy_raw_flush(writer=writer.inputs[0]) for writer in self._writers]

    def after_create_session(self, session: Any, coord: Any) -> None:
        del coord
        session.run(self._writers)

    def before_run(self, run_context: Any) -> Any:
        del run_context
        return session_run_hook.SessionRunArgs(self._tensors)

    def end(self, session: Any) -> None:
        session.run(self._flushes)


def _check_call(name: str, call: Any) -> None:
    if not isinstance(call, tuple | list):
        raise ValueError(f"{name} should be tuple or list")
    if len(call) != 2:
        raise ValueError(f"{name} should have two elements.")
    function, tensors = call
    if not callable(function):
        raise TypeError(f"{name}[0] should be callable.")
    if not isinstance(tensors, tuple | list | dict):
        raise ValueError(f"{name}[1] should be tuple or list, or dict.")
    taken = function_utils.fn_args(function)
    takes_any = tf_inspect.getfullargspec(function).varargs is not None
    if not isinstance(tensors, dict) and not takes_any and len(tensors) != len(taken):
        raise RuntimeError(
            f"In TPUEstimatorSpec.{name}, length of tensors {len(tensors)} does not match method args of the function, "
            f"which takes {len(taken)}."
        )


def _called(name: str, call: Any) -> Any:
    function, tensors = call
    if not isinstance(tensors, dict):
        return function(*tensors)
    try:
        return function(**tensors)
    except TypeError as error:
        logging.warning(
            "Exception while calling %s: %s. It is likely the tensors (%s[1]) do not match the function's arguments",
            name,
            error,
            name,
        )
        raise


class TPUEstimatorSpec(_TPUEstimatorSpec):
    """The result of a TPUEstimator's model_fn.

    Args:
      mode: one of `tf.estimator.ModeKeys`.
      predictions: tensor, or dictionary of tensors.
      loss: tensor with one element.
      train_op: operation that runs a training step.
      eval_metrics: pair of a function and the list or dictionary of tensors to call it with. The function returns a
        dictionary from names to metric objects or (value, update) pairs.
      export_outputs: dictionary from names of signatures to `export.ExportOutput`.
      scaffold_fn: function that creates the `Scaffold`, or None.
      host_call: pair of a function and the list or dictionary of tensors to call it with. Its result is run in each
        step.
      training_hooks: hooks in training.
      evaluation_hooks: hooks in evaluation.
      prediction_hooks: hooks in prediction.

    Raises:
      ValueError: As for `tf.estimator.EstimatorSpec`, or if `eval_metrics` or `host_call` isn't such a pair.
      TypeError: If an argument has the wrong type.
      RuntimeError: If a function requires a different number of tensors.
    """

    __slots__ = ()

    def __new__(
        cls,
        mode: str,
        predictions: Any = None,
        loss: Any = None,
        train_op: Any = None,
        eval_metrics: Any = None,
        export_outputs: Any = None,
        scaffold_fn: Callable[[], Any] | None = None,
        host_call: Any = None,
        training_hooks: Any = None,
        evaluation_hooks: Any = None,
        prediction_hooks: Any = None,
    ) -> TPUEstimatorSpec:
        for name, call in (("eval_metrics", eval_metrics), ("host_call", host_call)):
            if call is not None:
                _check_call(name, call)
        checked = EstimatorSpec(
            mode,
            predictions=predictions,
            loss=loss,
            train_op=train_op,
            export_outputs=export_outputs,
            training_hooks=training_hooks,
            evaluation_hooks=evaluation_hooks,
            prediction_hooks=prediction_hooks,
        )
        return super().__new__(
            cls,
            mode,
            checked.predictions,
            checked.loss,
            checked.train_op,
            eval_metrics,
            checked.export_outputs,
            scaffold_fn,
            host_call,
            checked.training_hooks,
            checked.evaluation_hooks,
            checked.prediction_hooks,
        )

    def as_estimator_spec(self) -> Any:
        """Returns the `tf.estimator.EstimatorSpec` of the same model on CPU and GPU."""
        metrics = None if self.eval_metrics is None else _called("eval_metrics", self.eval_metrics)
        hooks: tuple[Any, ...] = ()
        if self.host_call is not None:
            hooks = (_HostCallHook(_called("host_call", self.host_call)),)
        return EstimatorSpec(
            self.mode,
            predictions=self.predictions,
            loss=self.loss,
            train_op=self.train_op,
            eval_metric_ops=metrics,
            export_outputs=self.export_outputs,
            scaffold=self.scaffold_fn() if self.scaffold_fn else None,
            training_hooks=(*self.training_hooks, *hooks),
            evaluation_hooks=(*self.evaluation_hooks, *hooks),
            prediction_hooks=(*self.prediction_hooks, *hooks),
        )
