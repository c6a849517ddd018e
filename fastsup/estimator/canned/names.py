"""The public names of the canned models and heads, and what they are in the archive."""

from __future__ import annotations

from typing import Any

from fastsup.common.absent_names import absent_name_error
from fastsup.estimator.canned.archive import absence
from fastsup.estimator.canned.loader import model_module

__all__ = ["EXPERIMENTAL", "V1", "V2", "canned_object"]


def _of_version(suffix: str) -> dict[str, tuple[str, str]]:
    function_suffix = f"_{suffix.lower()}" if suffix else ""
    models = {"baseline": "Baseline", "dnn": "DNN", "dnn_linear_combined": "DNNLinearCombined", "linear": "Linear"}
    return {
        f"{model}{task}": (f"canned.{module}", f"{model}{task}{suffix}")
        for module, model in models.items()
        for task in ("Classifier", "Estimator", "Regressor")
    } | {
        f"{task}_parse_example_spec": ("canned.parsing_utils", f"{task}_parse_example_spec{function_suffix}")
        for task in ("classifier", "regressor")
    }


_HEADS = {
    "BinaryClassHead": "binary_class_head",
    "Head": "base_head",
    "LogisticRegressionHead": "regression_head",
    "MultiClassHead": "multi_class_head",
    "MultiHead": "multi_head",
    "MultiLabelHead": "multi_label_head",
    "PoissonRegressionHead": "regression_head",
    "RegressionHead": "regression_head",
}
_EITHER = {name: (f"head.{module}", name) for name, module in _HEADS.items()}
# The names of `tf.compat.v1.estimator` and of `tf.estimator`, each with its module in the archive and its name there.
V1 = _EITHER | _of_version("")
V2 = _EITHER | _of_version("V2") | {"model_to_estimator": ("keras_lib", "model_to_estimator")}
# The names of `experimental`, in both.
EXPERIMENTAL = {
    "KMeans": ("canned.kmeans", "KMeansClustering"),
    "LinearSDCA": ("canned.linear", "LinearSDCA"),
    "RNNClassifier": ("canned.rnn", "RNNClassifier"),
    "RNNEstimator": ("canned.rnn", "RNNEstimator"),
    "dnn_logit_fn_builder": ("canned.dnn", "dnn_logit_fn_builder"),
    "linear_logit_fn_builder": ("canned.linear", "linear_logit_fn_builder"),
}


def canned_object(module: str, name: str, names: dict[str, tuple[str, str]]) -> Any:
    """A class or function of the archive, which is loaded at the first call.

    Args:
      module: name of the module that the program has asked, for the error.
      name: the name.
      names: one of the tables of this module, which has the name.

    Raises:
      AttributeError: the archive isn't installed. The message says what to install.
    """
    missing = absence()
    if missing is not None:
        raise absent_name_error(module, name, missing)
    path, short = names[name]
    return getattr(model_module(path), short)
