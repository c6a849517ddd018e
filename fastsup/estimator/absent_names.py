"""Errors for names of `tf.estimator` and `tf.contrib.learn` that fastsup doesn't have, with alternatives."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["absent_name_error"]

# Names that tf.estimator had before TensorFlow 2.15.
_OLDER = frozenset(
    ["BoostedTreesClassifier", "BoostedTreesEstimator", "BoostedTreesRegressor", "DNNWithLayerAnnotationsClassifier"]
)


def _alternative_to(name: str) -> str | None:
    """The alternative to a name of `tf.estimator` that fastsup doesn't have.

    Args:
      name: the name, without its module.

    Returns:
      The alternative, a sentence; None for any other name.
    """
    if name in _OLDER:
        return (
            "TensorFlow 2.15 had it no more. Write a model_fn with Keras layers or variables, and pass it to "
            "fastsup.estimator.Estimator (docs/estimator.md)."
        )
    if name == "tpu":
        return (
            "TPUs aren't supported. TPUEstimator ended with TensorFlow 2.15; on TPUs use tf.distribute.TPUStrategy "
            "with Keras or a custom training loop. On CPU and GPU, fastsup.install() brings tf.estimator.tpu, for "
            "use_tpu=False (docs/migrating.md)."
        )
    if name == "SavedModelEstimator":
        return "Load the model in a model_fn, with tf.saved_model.load, and pass that to fastsup.estimator.Estimator."
    return None


def absent_name_error(module: str, name: str, elsewhere: Iterable[str] = ()) -> AttributeError:
    """The error for a name that a module doesn't have.

    Args:
      module: name of the module.
      name: the missing name.
      elsewhere: names of other modules, each with its module.

    Returns:
      AttributeError whose message has the alternative, if there is one.
    """
    for path in elsewhere:
        if path.rpartition(".")[2] == name:
            return AttributeError(f"{module} has no {name}: use {path}.", name=name)
    text = _alternative_to(name)
    if text is None:
        return AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
    return AttributeError(f"{module} has no {name}: {text}", name=name)
