"""fastsup's classes, names and optimizers that replace the modules of tensorflow_estimator without models."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tensorflow.python.saved_model import model_utils
from tensorflow.python.saved_model.model_utils import export_output
from tensorflow.python.training import adagrad, adam, ftrl, gradient_descent, optimizer, rmsprop

from fastsup.estimator import inputs
from fastsup.estimator.config.run_config import RunConfig, resolve_config
from fastsup.estimator.export import receivers
from fastsup.estimator.model.estimator import Estimator, EstimatorV1
from fastsup.estimator.model.model_checkpoints import VocabInfo, WarmStartSettings
from fastsup.estimator.model.model_fn import EstimatorSpec, ModeKeys, TPUEstimatorSpec, call_logit_fn

__all__ = [
    "AVERAGE_LOSS_METRIC_KEY",
    "LOSS_METRIC_KEY",
    "OUR_MODULES",
    "MetricKeys",
    "PredictionKeys",
    "estimator_export",
    "get_optimizer_instance",
]


class MetricKeys:
    """Names of metrics. "%g" stands for a threshold, "%d" for the number of a class and "%s" for its name."""

    LOSS = "loss"
    LOSS_MEAN = "average_loss"
    LOSS_REGULARIZATION = "regularization_loss"
    ACCURACY = "accuracy"
    ACCURACY_BASELINE = "accuracy_baseline"
    ACCURACY_AT_THRESHOLD = "accuracy/positive_threshold_%g"
    PRECISION = "precision"
    PRECISION_AT_THRESHOLD = "precision/positive_threshold_%g"
    PRECISION_AT_RECALL = "precision_at_recall_%g"
    RECALL = "recall"
    RECALL_AT_THRESHOLD = "recall/positive_threshold_%g"
    RECALL_AT_PRECISION = "recall_at_precision_%g"
    SENSITIVITY_AT_SPECIFICITY = "sensitivity_at_specificity_%g"
    SPECIFICITY_AT_SENSITIVITY = "specificity_at_sensitivity_%g"
    AUC = "auc"
    AUC_AT_CLASS = "auc/class%d"
    AUC_AT_NAME = "auc/%s"
    AUC_PR = "auc_precision_recall"
    AUC_PR_AT_CLASS = "auc_precision_recall/class%d"
    AUC_PR_AT_NAME = "auc_precision_recall/%s"
    LABEL_MEAN = "label/mean"
    PREDICTION_MEAN = "prediction/mean"
    PROBABILITY_MEAN_AT_CLASS = "probability_mean/class%d"
    PROBABILITY_MEAN_AT_NAME = "probability_mean/%s"


class PredictionKeys:
    """Names of predictions."""

    CLASSES = "classes"
    CLASS_IDS = "class_ids"
    ALL_CLASSES = "all_classes"
    ALL_CLASS_IDS = "all_class_ids"
    LOGISTIC = "logistic"
    LOGITS = "logits"
    PREDICTIONS = "predictions"
    PROBABILITIES = "probabilities"
    TOP_K = "top_k"


_OPTIMIZERS = {
    "Adagrad": adagrad.AdagradOptimizer,
    "Adam": adam.AdamOptimizer,
    "Ftrl": ftrl.FtrlOptimizer,
    "RMSProp": rmsprop.RMSPropOptimizer,
    "SGD": gradient_descent.GradientDescentOptimizer,
}


def get_optimizer_instance(opt: Any, learning_rate: float | None = None) -> Any:
    """Returns the optimizer for an object, function or name.

    Args:
      opt: a `tf.compat.v1.train.Optimizer`, a function that returns one, or a name: "Adagrad", "Adam", "Ftrl",
        "RMSProp" or "SGD".
      learning_rate: learning rate for a name.

    Returns:
      The `tf.compat.v1.train.Optimizer`.

    Raises:
      ValueError: If the name is unknown or has no learning rate, or `opt` is something else.
    """
    if isinstance(opt, str):
        if opt not in _OPTIMIZERS:
            raise ValueError(f"Unsupported optimizer name: {opt}. Supported names are: {tuple(sorted(_OPTIMIZERS))}")
        if not learning_rate:
            raise ValueError("learning_rate must be specified when opt is string.")
        return _OPTIMIZERS[opt](learning_rate=learning_rate)
    made = opt() if callable(opt) else opt
    if not isinstance(made, optimizer.Optimizer):
        raise ValueError(f"The given object is not an Optimizer instance. Given: {made}")
    return made


LOSS_METRIC_KEY = "loss"
AVERAGE_LOSS_METRIC_KEY = "average_loss"


def estimator_export(*names: str, **names_by_version: Any) -> Callable[[Any], Any]:
    """Returns a decorator that does nothing. TensorFlow's decorator exported names to its public interface.

    Args:
      *names: the public names.
      **names_by_version: the public names in a version.
    """
    del names, names_by_version
    return lambda exported: exported


class _UsageGauge:
    """A gauge that records nothing. TensorFlow's gauge counted uses of the models."""

    def get_cell(self, *labels: str) -> _UsageGauge:
        del labels
        return self

    def set(self, value: Any) -> None:
        del value


# Keys are names relative to `tensorflow_estimator.python.estimator`.
OUR_MODULES: dict[str, Any] = {
    "estimator": SimpleNamespace(
        Estimator=EstimatorV1,
        EstimatorV2=Estimator,
        VocabInfo=VocabInfo,
        WarmStartSettings=WarmStartSettings,
        _canned_estimator_api_gauge=_UsageGauge(),
        maybe_overwrite_model_dir_and_session_config=resolve_config,
    ),
    "estimator_export": SimpleNamespace(estimator_export=estimator_export),
    "estimator_lib": SimpleNamespace(Estimator=EstimatorV1, EstimatorSpec=EstimatorSpec, ModeKeys=ModeKeys),
    "export.export": receivers,
    "export.export_lib": SimpleNamespace(
        **{
            **vars(model_utils),
            "_SupervisedOutput": export_output._SupervisedOutput,
            **{name: getattr(receivers, name) for name in receivers.__all__},
        },
    ),
    "export.export_output": export_output,
    "inputs.numpy_io": inputs,
    "inputs.pandas_io": inputs,
    "mode_keys": SimpleNamespace(ModeKeys=ModeKeys),
    "model_fn": SimpleNamespace(
        AVERAGE_LOSS_METRIC_KEY=AVERAGE_LOSS_METRIC_KEY,
        EstimatorSpec=EstimatorSpec,
        LOSS_METRIC_KEY=LOSS_METRIC_KEY,
        ModeKeys=ModeKeys,
        _TPUEstimatorSpec=TPUEstimatorSpec,
        call_logit_fn=call_logit_fn,
    ),
    "run_config": SimpleNamespace(RunConfig=RunConfig),
}
