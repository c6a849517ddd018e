"""Names and optimizers of canned models, which programs with their own model_fn use too."""

from __future__ import annotations

from typing import Any

from tensorflow.python.training import adagrad, adam, ftrl, gradient_descent, optimizer, rmsprop

__all__ = ["MetricKeys", "PredictionKeys", "get_optimizer_instance"]


class MetricKeys:
    """Names of metrics. "%g", "%d" and "%s" stand for a threshold, the number and the name of a class."""

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
    """The optimizer that an argument describes.

    Args:
      opt: a `tf.compat.v1.train.Optimizer`, a function that returns one, or a name: "Adagrad", "Adam", "Ftrl",
        "RMSProp" or "SGD".
      learning_rate: learning rate for a name.

    Returns:
      The `tf.compat.v1.train.Optimizer`.

    Raises:
      ValueError: there is no optimizer of that name, a name comes without learning rate, or `opt` is something else.
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
