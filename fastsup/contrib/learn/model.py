"""ModelFnOps, the result of a model_fn of `tf.contrib.learn`; MetricSpec, its metrics; and their constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from tensorflow.python.framework import dtypes, ops, sparse_tensor, tensor_shape
from tensorflow.python.ops import array_ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.saved_model import signature_constants
from tensorflow.python.training import session_run_hook
from tensorflow.python.util import function_utils

from fastsup import estimator

__all__ = [
    "Environment",
    "MetricKey",
    "MetricSpec",
    "ModeKeys",
    "ModelFnOps",
    "PredictionKey",
    "ProblemType",
    "make_metrics_ops",
]


class ModeKeys:
    """Purposes of a call to a model_fn. A `tf.estimator.Estimator` passes the same strings."""

    TRAIN = "train"
    EVAL = "eval"
    INFER = "infer"

    @classmethod
    def validate(cls, key: str) -> None:
        """Rejects an unknown mode.

        Args:
          key: the mode.

        Raises:
          ValueError: If `key` isn't one of the three modes.
        """
        if key not in (cls.TRAIN, cls.EVAL, cls.INFER):
            raise ValueError(f"Invalid mode {key}.")


class ProblemType:
    """Kinds of signatures of an exported model."""

    UNSPECIFIED = 0
    CLASSIFICATION = 1
    LINEAR_REGRESSION = 2
    LOGISTIC_REGRESSION = 3


class MetricKey:
    """Names of metrics. "%d" stands for the number of a class, and "%f" for a threshold."""

    LOSS = "loss"
    AUC = "auc"
    AUC_PR = "auc_precision_recall"
    CLASS_AUC = "auc/class%d"
    CLASS_AUC_PR = "auc_precision_recall/class%d"
    PREDICTION_MEAN = "labels/prediction_mean"
    CLASS_PREDICTION_MEAN = "labels/prediction_mean/class%d"
    CLASS_LOGITS_MEAN = "labels/logits_mean/class%d"
    CLASS_PROBABILITY_MEAN = "labels/probability_mean/class%d"
    LABEL_MEAN = "labels/actual_label_mean"
    CLASS_LABEL_MEAN = "labels/actual_label_mean/class%d"
    ACCURACY = "accuracy"
    ACCURACY_BASELINE = "accuracy/baseline_label_mean"
    ACCURACY_MEAN = "accuracy/threshold_%f_mean"
    PRECISION_MEAN = "precision/positive_threshold_%f_mean"
    RECALL_MEAN = "recall/positive_threshold_%f_mean"


class PredictionKey:
    """Names of predictions."""

    CLASSES = "classes"
    PROBABILITIES = "probabilities"
    LOGITS = "logits"
    LOGISTIC = "logistic"
    SCORES = "scores"
    TOP_K = "top_k"
    GENERIC = "output"


class Environment:
    """Environments of a job in TF_CONFIG. In the cloud, an Experiment starts the servers of its tasks."""

    CLOUD = "cloud"
    GOOGLE = "google"
    LOCAL = "local"


class _ModelFnOps(NamedTuple):
    predictions: Any
    loss: Any
    train_op: Any
    eval_metric_ops: Any
    output_alternatives: Any
    training_chief_hooks: Any
    training_hooks: Any
    scaffold: Any
    mode: Any


def _scalar(loss: Any) -> Any:
    loss = ops.convert_to_tensor(loss)
    shape = loss.get_shape()
    if shape.num_elements() not in (None, 1):
        raise ValueError(f"Loss must be scalar: {loss}.")
    return loss if shape.is_compatible_with(tensor_shape.TensorShape([])) else array_ops.reshape(loss, [])


def _tensors(predictions: Any) -> Any:
    convert = sparse_tensor.convert_to_tensor_or_sparse_tensor
    if isinstance(predictions, dict):
        return {name: convert(value) for name, value in predictions.items()}
    return convert(predictions)


class ModelFnOps(_ModelFnOps):
    """A model: predictions, loss, and the operation of a training step.

    Args:
      mode: one of `ModeKeys`.
      predictions: a tensor or a dictionary of tensors. Required for evaluation and prediction.
      loss: scalar tensor. Required for training and evaluation.
      train_op: operation of a training step. Required for training.
      eval_metric_ops: dictionary from names to metrics, or None.
      output_alternatives: dictionary from names of heads to pairs of a `ProblemType` and a dictionary of predictions,
        for exports; or None.
      training_chief_hooks: hooks of the chief, or None.
      training_hooks: hooks for training, or None.
      scaffold: `Scaffold`, or None.

    Raises:
      ValueError: If a value that the mode requires is missing, or a value has the wrong kind.
      TypeError: If a hook isn't a `SessionRunHook`.
    """

    __slots__ = ()

    def __new__(
        cls,
        mode: str,
        predictions: Any = None,
        loss: Any = None,
        train_op: Any = None,
        eval_metric_ops: Any = None,
        output_alternatives: Any = None,
        training_chief_hooks: Iterable[Any] | None = None,
        training_hooks: Iterable[Any] | None = None,
        scaffold: Any = None,
    ) -> ModelFnOps:
        ModeKeys.validate(mode)
        if train_op is None and mode == ModeKeys.TRAIN:
            raise ValueError("Missing train_op.")
        if loss is None and mode in (ModeKeys.TRAIN, ModeKeys.EVAL):
            raise ValueError("Missing loss.")
        if predictions is None and mode in (ModeKeys.INFER, ModeKeys.EVAL):
            raise ValueError("Missing predictions.")
        if eval_metric_ops is not None and not isinstance(eval_metric_ops, dict):
            raise ValueError("eval_metric_ops must be a dict.")
        if train_op is not None and not isinstance(train_op, ops.Operation):
            train_op = ops.convert_to_tensor(train_op).op
        chief_hooks, hooks = list(training_chief_hooks or []), list(training_hooks or [])
        for hook in [*hooks, *chief_hooks]:
            if not isinstance(hook, session_run_hook.SessionRunHook):
                raise TypeError(
                    "All hooks returned from model_fn must be SessionRunHook instances, got instance of "
                    f"{type(hook)}: {hook}"
                )
        return super().__new__(
            cls,
            predictions=None if predictions is None else _tensors(predictions),
            loss=None if loss is None else _scalar(loss),
            train_op=train_op,
            eval_metric_ops={} if eval_metric_ops is None else eval_metric_ops,
            output_alternatives=output_alternatives,
            training_chief_hooks=chief_hooks,
            training_hooks=hooks,
            scaffold=scaffold,
            mode=mode,
        )

    def estimator_spec(self, default_serving_output_alternative_key: str | None = None) -> Any:
        """Converts the model for a `tf.estimator.Estimator`.

        Args:
          default_serving_output_alternative_key: name of the head to serve, if there are several.

        Returns:
          The `EstimatorSpec`.

        Raises:
          ValueError: If a head has an unknown kind.
        """
        heads = dict(self.output_alternatives or {})
        default = signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY
        if len(heads) > 1 and default not in heads:
            heads[default] = heads[default_serving_output_alternative_key]
        return estimator.EstimatorSpec(
            mode=self.mode,
            predictions=self.predictions,
            loss=self.loss,
            train_op=self.train_op,
            # The Estimator adds the mean loss.
            eval_metric_ops={name: ops for name, ops in self.eval_metric_ops.items() if name != MetricKey.LOSS},
            export_outputs={name: _export_output(*head) for name, head in heads.items()} or None,
            training_chief_hooks=self.training_chief_hooks,
            training_hooks=self.training_hooks,
            scaffold=self.scaffold,
        )


def _export_output(problem_type: int | None, predictions: Any) -> Any:
    scores = predictions.get(PredictionKey.SCORES, predictions.get(PredictionKey.PROBABILITIES))
    if problem_type == ProblemType.LINEAR_REGRESSION:
        return estimator.export.RegressionOutput(scores)
    if problem_type in (ProblemType.CLASSIFICATION, ProblemType.LOGISTIC_REGRESSION):
        classes = predictions.get(PredictionKey.CLASSES)
        if classes is None:
            logging.warning("classes is None, Servo inference will not have class ids.")
        elif classes.dtype != dtypes.string:
            logging.warning("classes is not string, Servo inference will not have class ids.")
            classes = None
        return estimator.export.ClassificationOutput(scores=scores, classes=classes)
    if problem_type == ProblemType.UNSPECIFIED:
        return estimator.export.PredictOutput(predictions)
    raise ValueError(f"Unknown problem_type={problem_type}")


# Names of metric functions' parameters, in order of preference.
_LABELS = ("labels", "label", "targets", "target")
_PREDICTIONS = ("predictions", "prediction", "logits", "logit")
_WEIGHTS = ("weights", "weight")


def _parameter(function: str, parameters: tuple[str, ...], candidates: tuple[str, ...], required: bool) -> str | None:
    """Returns the name of a metric function's parameter for the labels, predictions or weights, or None."""
    found = [name for name in candidates if name in parameters]
    if len(found) > 1:
        raise ValueError(f"Ambiguous arguments {set(found)}, must provide only one of {set(candidates)}.")
    if not found and required:
        raise ValueError(f"{set(candidates)} missing from {function}({parameters}).")
    if found and found[0] != candidates[0]:
        logging.warning(
            "Canonical arg %s missing from %s(%s), using %s.", candidates[0], function, parameters, found[0]
        )
    return found[0] if found else None


def _named(metric_fn: Callable[..., Any], function: str, needs_labels: bool, needs_weights: bool) -> Callable[..., Any]:
    """Wraps a metric function to take `labels`, `predictions` and `weights`, whatever its parameters are named."""
    parameters = tuple(function_utils.fn_args(metric_fn))
    labels_name = _parameter(function, parameters, _LABELS, needs_labels)
    predictions_name = _parameter(function, parameters, _PREDICTIONS, False)
    weights_name = _parameter(function, parameters, _WEIGHTS, needs_weights)

    def call(labels: Any = None, predictions: Any = None, weights: Any = None) -> Any:
        named = {} if weights is None else {str(weights_name): weights}
        if predictions_name:
            named[predictions_name] = predictions
            if labels_name:
                named[labels_name] = labels
            return metric_fn(**named)
        if labels_name and labels_name == parameters[0]:
            return metric_fn(labels, predictions, **named)
        if labels_name:
            named[labels_name] = labels
        return metric_fn(predictions, **named)

    return call


def _member(kind: str, values: Any, key: str | None) -> Any:
    """Returns one of several labels or predictions. Without a key, returns the only one."""
    if key:
        if not isinstance(values, dict):
            raise ValueError(
                f"MetricSpec with {kind}_key specified requires {kind}s dict, got {values}.\nYou must not provide a "
                f"{kind}_key if you only have a single Tensor as {kind}s."
            )
        if key not in values:
            raise KeyError(f"Key '{key}' missing from {values.keys()}.")
        return values[key]
    if not isinstance(values, dict):
        return values
    if len(values) != 1:
        raise ValueError(
            f"MetricSpec without specified {kind}_key requires {kind}s tensor or single element dict, got {values}"
        )
    return next(iter(values.values()))


class MetricSpec:
    """A metric function and the names of its inputs.

    Args:
      metric_fn: function of predictions, and optionally labels and weights, with parameters of these names. Returns a
        value, or a pair of the value and an operation that updates it.
      prediction_key: name of the prediction. If None, uses the only one.
      label_key: name of the label. If None, uses the only one.
      weight_key: name of the feature with the weights. If None, uses no weights.

    Raises:
      ValueError: If labels or weights are given but the function doesn't take them, or it has two parameters for one.
    """

    def __init__(
        self,
        metric_fn: Callable[..., Any],
        prediction_key: str | None = None,
        label_key: str | None = None,
        weight_key: str | None = None,
    ) -> None:
        inner = getattr(metric_fn, "func", metric_fn)
        self._metric_fn_name = getattr(metric_fn, "__name__", getattr(inner, "__name__", str(metric_fn)))
        self._metric_fn = _named(metric_fn, self._metric_fn_name, label_key is not None, weight_key is not None)
        self._prediction_key, self._label_key, self._weight_key = prediction_key, label_key, weight_key

    @property
    def prediction_key(self) -> str | None:
        """The name of the prediction, or None."""
        return self._prediction_key

    @property
    def label_key(self) -> str | None:
        """The name of the label, or None."""
        return self._label_key

    @property
    def weight_key(self) -> str | None:
        """The name of the feature with the weights, or None."""
        return self._weight_key

    @property
    def metric_fn(self) -> Callable[..., Any]:
        """The function with parameters named `labels`, `predictions` and `weights`."""
        return self._metric_fn

    def __str__(self) -> str:
        return (
            f"MetricSpec(metric_fn={self._metric_fn_name}, prediction_key={self.prediction_key}, "
            f"label_key={self.label_key}, weight_key={self.weight_key})"
        )

    def create_metric_ops(self, inputs: Any, labels: Any, predictions: Any) -> Any:
        """Calls the function.

        Args:
          inputs: dictionary of the features.
          labels: the labels, as a tensor or a dictionary of tensors.
          predictions: the predictions, as a tensor or a dictionary of tensors.

        Returns:
          The function's result.

        Raises:
          ValueError: If there are several labels or predictions but no key, or a single one and a key.
          KeyError: If the key doesn't exist.
        """
        prediction = _member("prediction", predictions, self.prediction_key)
        label = _member("label", labels, self.label_key)
        weights = inputs[self.weight_key] if self.weight_key else None
        try:
            return self.metric_fn(labels=label, predictions=prediction, weights=weights)
        except Exception as error:
            logging.error("Could not create metric ops for %s, %s.", self, error)
            raise


def make_metrics_ops(metrics: Mapping[Any, Any], features: Any, labels: Any, predictions: Any) -> dict[str, Any]:
    """Calls several metric functions: `MetricSpec`s, or functions of predictions and labels. Returns results by name.

    The name of such a function may be a pair of a name and the prediction's name.
    """
    only_label = next(iter(labels.values())) if isinstance(labels, dict) and len(labels) == 1 else labels
    results = {}
    for name, metric in sorted(metrics.items(), key=str):
        if isinstance(metric, MetricSpec):
            results[name] = metric.create_metric_ops(features, labels, predictions)
        elif isinstance(name, tuple):
            if len(name) != 2:
                raise ValueError(f"Invalid metric for {name}. It returned a tuple with len {len(name)}, expected 2.")
            if not isinstance(predictions, dict):
                raise ValueError(
                    "Metrics passed provide (name, prediction), but predictions are not dict. "
                    f"Metrics: {metrics}, Predictions: {predictions}."
                )
            label = labels[name[1]] if isinstance(labels, dict) and name[1] in labels else only_label
            results[name[0]] = metric(predictions[name[1]], label)
        elif isinstance(predictions, dict):
            raise ValueError(
                "Metrics passed provide only name, no prediction, but predictions are dict. "
                f"Metrics: {metrics}, Labels: {only_label}."
            )
        else:
            results[name] = metric(predictions, only_label)
    return results
