"""Modules that TensorFlow and tf_keras have moved, where programs and libraries look for them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Container

__all__ = ["KERAS", "KERAS_2", "MOVED", "place_of"]

_PYTHON = "tensorflow.python"
_LEGACY_LAYERS = "tf_keras.legacy_tf_layers"
_TPU = "tensorflow_estimator.python.estimator.tpu"
# Keras as TensorFlow had it inside, of which a part is left. Keras 2 is in another package.
KERAS, KERAS_2 = f"{_PYTHON}.keras", "tf_keras.src"

# Where a module of tensorflow.python was, and where in tensorflow.python it is. An empty string: a package that doesn't
# exist any longer, whose modules are elsewhere.
_IN_TENSORFLOW = {
    "data.experimental.ops.distribute_options": "data.ops.options",
    "data.experimental.ops.optimization_options": "data.ops.options",
    "data.experimental.ops.threading_options": "data.ops.options",
    "distribute.all_reduce": "distribute.v1.all_reduce",
    "distribute.distribution_strategy_context": "distribute.distribute_lib",
    "eager.function_context": "eager.polymorphic_function.function_context",
    "eager.function_spec": "eager.polymorphic_function.function_type_utils",
    "eager.polymorphic_function.function_spec": "eager.polymorphic_function.function_type_utils",
    "eager.polymorphic_function.monomorphic_function": "eager.polymorphic_function.concrete_function",
    "ops.linalg.registrations_util": "ops.linalg.property_hint_util",
    "ops.losses.loss_reduction": "keras.utils.losses_utils",
    "ops.rnn_cell_wrapper_impl": "keras.layers.legacy_rnn.rnn_cell_wrapper_impl",
    "tpu.tpu_embedding": "tpu.tpu_embedding_v1",
    "training.distribute": "distribute.distribute_lib",
    "training.distribution_strategy_context": "distribute.distribute_lib",
    "training.gen_training_ops": "ops.gen_training_ops",
    "training.saving.checkpoint_options": "checkpoint.checkpoint_options",
    "training.saving.functional_saver": "checkpoint.functional_saver",
    "training.tracking": "",
    "training.tracking.asset": "trackable.asset",
    "training.tracking.autotrackable": "trackable.autotrackable",
    "training.tracking.base": "trackable.base",
    "training.tracking.base_delegate": "trackable.base_delegate",
    "training.tracking.checkpoint_util": "checkpoint.util",
    "training.tracking.data_structures": "trackable.data_structures",
    "training.tracking.graph_view": "checkpoint.graph_view",
    "training.tracking.layer_utils": "trackable.layer_utils",
    "training.tracking.python_state": "trackable.python_state",
    "training.tracking.resource": "trackable.resource",
    "training.tracking.trackable_utils": "trackable.trackable_utils",
    "training.tracking.tracking": "trackable.autotrackable",
    "training.tracking.util": "checkpoint.checkpoint",
    "training.training_ops": "ops.gen_training_ops",
    "util.compat_internal": "util.compat",
    "util.deprecation_wrapper": "util.module_wrapper",
}
# The same by full names; some are in other packages.
MOVED = {
    **{f"{_PYTHON}.{old}": place and f"{_PYTHON}.{place}" for old, place in _IN_TENSORFLOW.items()},
    f"{_PYTHON}.distribute.estimator_training": "fastsup.compat.moved.ended_names",
    **{f"{_PYTHON}.tpu.{name}": f"{_TPU}.{name}" for name in ("tpu_config", "tpu_context", "tpu_estimator", "util")},
    **{
        f"{_PYTHON}.feature_column.{name}": f"{KERAS_2}.feature_column.{name}"
        for name in ("dense_features", "dense_features_v2")
    },
    # TensorFlow itself imports this one where it was.
    _LEGACY_LAYERS: "",
    **{
        f"{_LEGACY_LAYERS}.{name}": f"{KERAS_2}.legacy_tf_layers.{name}"
        for name in ("base", "convolutional", "core", "normalization", "pooling", "variable_scope_shim")
    },
}


def _of_keras_2(fullname: str, is_there: Callable[[], bool], placed: Container[str]) -> str | None:
    """The place of a module of Keras that TensorFlow no longer has."""
    if not fullname.startswith(f"{KERAS}."):
        return None
    # What is in a package that was found elsewhere would be found there, and be executed a second time.
    if fullname.rpartition(".")[0] not in placed and is_there():
        return None
    place = KERAS_2 + fullname[len(KERAS) :]
    try:
        return place if importlib.util.find_spec(place) is not None else None
    except ModuleNotFoundError:
        return None


def place_of(fullname: str, is_there: Callable[[], bool], placed: Container[str]) -> str | None:
    """Where a module that was moved is.

    Args:
      fullname: the name under which it is imported.
      is_there: function that tells whether the module is found under that name.
      placed: the names of modules that were found elsewhere before.

    Returns:
      The name of the module there, or an empty string for a package whose modules are elsewhere; None for any other
      module, and in a version that has the module where it was.
    """
    if fullname in MOVED:
        return None if is_there() else MOVED[fullname]
    return _of_keras_2(fullname, is_there, placed)
