"""EstimatorSpec, which a model_fn returns, and the checks of a model_fn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tensorflow.python.framework import ops, tensor_shape
from tensorflow.python.ops import array_ops, variables
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.saved_model import model_utils
from tensorflow.python.saved_model.model_utils.mode_keys import EstimatorModeKeys
from tensorflow.python.training.monitored_session import Scaffold
from tensorflow.python.types import core
from tensorflow.python.util import function_utils

from fastsup.estimator.config.tensorflow_names import v1
from fastsup.estimator.model.arguments import check_hooks
from fastsup.estimator.model.eval_metrics import OTHER_GRAPH, check_metrics

__all__ = ["EstimatorSpec", "ModeKeys", "call_logit_fn", "check_mode", "verify_model_fn_args"]

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
            f"train_op must be Operation or Tensor, given: {train_op}, a variable of Keras 3, whose optimizers make no "
            "operation that trains in a graph. Use tf.compat.v1.train.AdamOptimizer or another one of that module, or "
            "Keras 2. See `python -m fastsup docs estimator#keras-layers-in-a-model_fn`."
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
    """The operations of a model in one mode, with their hooks and scaffold: the return value of a model_fn.

    Training needs `loss` and `train_op`, evaluation needs `loss`, prediction needs `predictions`. The other fields are
    allowed in every mode.

    Args:
      mode: one of `ModeKeys`.
      predictions: tensor, or dictionary of tensors.
      loss: tensor with one element, the loss of a batch.
      train_op: operation that runs one training step.
      eval_metric_ops: dictionary from names to metric objects or (value, update) pairs.
      export_outputs: dictionary from names of signatures to `export.ExportOutput`. Defaults to one
        `export.PredictOutput` of the predictions.
      training_chief_hooks: hooks of the chief, in training.
      training_hooks: hooks of every task that trains.
      scaffold: `Scaffold` with the operations that initialise the model. Defaults to one made from the graph.
      evaluation_hooks: hooks in evaluation.
      prediction_hooks: hooks in prediction.

    Raises:
      ValueError: a field that the mode needs is missing; a tensor isn't of the default graph; the loss has several
        elements.
      TypeError: an argument is of the wrong type.
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
        """A copy with other values for some fields. All fields are checked again."""
        if "mode" in kwds and kwds["mode"] != self.mode:
            raise ValueError("mode of EstimatorSpec cannot be changed.")
        unknown = sorted(set(kwds) - set(self._fields))
        if unknown:
            raise ValueError(f"Got unexpected field names: {unknown}")
        return EstimatorSpec(**{**self._asdict(), **kwds})


# The fields that each mode needs. The constructor has checked those of the spec's own mode.
_REQUIRED_FIELDS = {
    ModeKeys.TRAIN: ("loss", "train_op"),
    ModeKeys.EVAL: ("loss",),
    ModeKeys.PREDICT: ("predictions",),
}


def check_mode(spec: Any, mode: str) -> None:
    """Refuses a spec that lacks a field that the mode of the call needs. The spec may be of another mode.

    Args:
      spec: the `EstimatorSpec`.
      mode: the mode that the model_fn was called in.

    Raises:
      ValueError: a required field is missing.
    """
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
    """Refuses a model_fn that an Estimator can't call.

    Args:
      model_fn: the function.
      params: the hyperparameters that the Estimator was given, or None.

    Raises:
      ValueError: the function has no argument `features`; it has no argument `params`, and there are some; or it has an
        argument that an Estimator doesn't pass.
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
    others = list(args - _MODEL_FN_ARGS)
    if others:
        raise ValueError(f"model_fn ({model_fn}) has following not expected args: {others}")


def call_logit_fn(logit_fn: Callable[..., Any], features: Any, mode: str, params: Any, config: Any) -> Any:
    """Calls a logit_fn with those of the arguments that it takes.

    Args:
      logit_fn: function of `features` and any of `mode`, `params`, `config`.
      features: the features.
      mode: one of `ModeKeys`.
      params: the hyperparameters.
      config: the `RunConfig`.

    Returns:
      The logits: a tensor, or a dictionary from strings to tensors.

    Raises:
      ValueError: the function returns something else.
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
