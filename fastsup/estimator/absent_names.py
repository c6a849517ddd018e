"""The names of `tf.estimator` and `tf.contrib.learn` that fastsup doesn't have, and where to go instead."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["absent", "suggestion"]

_CANNED_KINDS = ("Baseline", "BoostedTrees", "DNN", "DNNLinearCombined", "Linear", "RNN")
_CANNED = frozenset(
    [
        *(kind + task for kind in _CANNED_KINDS for task in ("Classifier", "Estimator", "Regressor")),
        "DNNWithLayerAnnotationsClassifier",
        "KMeans",
        "LinearSDCA",
    ]
)
_HEADS = frozenset(
    [
        "BinaryClassHead", "Head", "LogisticRegressionHead", "MultiClassHead", "MultiHead", "MultiLabelHead",
        "PoissonRegressionHead", "RegressionHead",
    ]
)  # fmt: skip
_PARSING_SPECS = frozenset(["classifier_parse_example_spec", "regressor_parse_example_spec"])
_LOGIT_FNS = frozenset(["dnn_logit_fn_builder", "linear_logit_fn_builder"])


def suggestion(name: str) -> str | None:
    """Where to go for a name of `tf.estimator` that fastsup lacks; None for any other name.

    Args:
      name: a name, without its module.
    """
    if name in _CANNED:
        return (
            "canned models aren't in fastsup. Write a model_fn with Keras layers or variables, and pass it to "
            "fastsup.estimator.Estimator (docs/estimator.md)."
        )
    if name in _HEADS:
        return (
            "heads aren't in fastsup. Compute the loss, the predictions and the metrics in the model_fn, and return a "
            "fastsup.estimator.EstimatorSpec (docs/estimator.md)."
        )
    if name in _LOGIT_FNS:
        return "logit functions aren't in fastsup. Compute the logits in the model_fn, with Keras layers or variables."
    if name in _PARSING_SPECS:
        return "canned models aren't in fastsup. tf.io.parse_example takes the dictionary of features directly."
    if name == "tpu":
        return (
            "TPUs aren't supported. TPUEstimator ended with TensorFlow 2.15; on TPUs use tf.distribute.TPUStrategy "
            "with Keras or a custom training loop."
        )
    return None


def absent(module: str, name: str, elsewhere: Iterable[str] = ()) -> AttributeError:
    """The error for a name that a module doesn't have.

    Args:
      module: the module's name.
      name: the name.
      elsewhere: names of other modules, with their modules, one of which may be meant.

    Returns:
      AttributeError that says where to go, if that is known.
    """
    for path in elsewhere:
        if path.rpartition(".")[2] == name:
            return AttributeError(f"{module} has no {name}: use {path}.", name=name)
    text = suggestion(name)
    if text is None:
        return AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
    return AttributeError(f"{module} has no {name}: {text}", name=name)
