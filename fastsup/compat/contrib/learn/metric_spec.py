"""MetricSpec: which label, prediction and weight a metric function of `tf.contrib.learn` gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.util import function_utils

__all__ = ["MetricSpec", "make_metrics_ops"]

# Names of the parameters of metric functions, the first one preferred.
_LABELS = ("labels", "label", "targets", "target")
_PREDICTIONS = ("predictions", "prediction", "logits", "logit")
_WEIGHTS = ("weights", "weight")


def _parameter(function: str, parameters: tuple[str, ...], candidates: tuple[str, ...], required: bool) -> str | None:
    """The name of a metric function's parameter for the labels, predictions or weights; None if there is none."""
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
    """A function of `labels`, `predictions` and `weights` that calls a metric function with its own parameters."""
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
    """One of several labels or predictions; without a key, the only one."""
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
    """A metric function with the names of what it gets.

    Args:
      metric_fn: function of predictions and perhaps labels and weights, by these names, that returns a value, or a pair
        of the value and an operation that updates it.
      prediction_key: name of the prediction. None: the only one.
      label_key: name of the label. None: the only one.
      weight_key: name of the feature that has the weights. None: no weights.

    Raises:
      ValueError: the function takes no labels or weights and is to get some, or has two parameters for one of them.
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
        """The name of the feature that has the weights, or None."""
        return self._weight_key

    @property
    def metric_fn(self) -> Callable[..., Any]:
        """The function, called by the names `labels`, `predictions` and `weights`."""
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
          labels: the labels: a tensor or a dictionary of tensors.
          predictions: the predictions: a tensor or a dictionary of tensors.

        Returns:
          The result of the function.

        Raises:
          ValueError: there are several labels or predictions and no name, or a name and a single one.
          KeyError: there isn't one of that name.
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
    """Calls several metric functions.

    Args:
      metrics: dictionary from names to `MetricSpec`s or functions of predictions and labels. The name of such a
        function may be a pair of the name and that of the prediction.
      features: dictionary of the features.
      labels: the labels: a tensor or a dictionary of tensors.
      predictions: the predictions: a tensor or a dictionary of tensors.

    Returns:
      Dictionary from the names to results.

    Raises:
      ValueError: a name doesn't go with the predictions.
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
