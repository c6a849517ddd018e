"""Loads the canned models from the archived package tensorflow-estimator 2.15, and lists their public names.

The modules import `tensorflow` and `tensorflow_estimator` by these names. Each module gets its own `__import__`, which
maps the names to other modules. Other code still sees the original TensorFlow. The installed package
tensorflow_estimator, which current TensorFlow can't import, is never imported.
"""

from __future__ import annotations

import builtins
import importlib.util
import sys
import threading
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from fastsup.common.absent_names import absent_name_error, install_command
from fastsup.estimator.canned.keras_versions import accepting_keras_3, refusing_keras_3, tensorflow_with_keras_2
from fastsup.estimator.canned.our_modules import OUR_MODULES

__all__ = [
    "ALTERNATIVES",
    "EXPERIMENTAL",
    "V1",
    "V2",
    "absence",
    "canned_object",
    "is_installed",
    "model_file",
    "model_module",
]

_DISTRIBUTION, _VERSION = "tensorflow-estimator", "2.15."
# The archive's folders and modules with models. fastsup replaces the other modules, which need names that current
# TensorFlow lacks.
_MODELS = frozenset({"canned", "head", "keras_lib"})


def _folder() -> Path | None:
    """Returns the folder of the models' modules, or None if the supported version of the archive isn't installed."""
    try:
        found = metadata.distribution(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return None
    if not found.version.startswith(_VERSION):
        return None
    return Path(str(found.locate_file("tensorflow_estimator/python/estimator")))


def _remedy() -> str:
    """Returns the installation command."""
    return (
        "pip install 'fastsup[canned]'; where TensorFlow is tensorflow-cpu: pip install tensorflow-estimator==2.15.0, "
        f"and then {install_command()}."
    )


def absence() -> str | None:
    """Returns a sentence about the packages that the canned models lack and how to install them, or None."""
    needs = f"it needs the archived package {_DISTRIBUTION} 2.15.0"
    try:
        version = metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return f"{needs}, which isn't installed: {_remedy()}"
    if not version.startswith(_VERSION):
        return f"{needs}, and {version} is installed: {_remedy()}"
    if importlib.util.find_spec("tf_keras") is None:
        return f"it needs Keras 2, the package tf_keras, which isn't installed: {_remedy()}"
    return None


def is_installed() -> bool:
    """Returns True if the canned models can be loaded."""
    return absence() is None


def model_file(name: str) -> tuple[Path, bool] | None:
    """Returns the file of a module of the archive, given its short name, and whether the module is a package.

    Returns None if the module has no models, the archive has no such module, or the archive isn't installed.
    """
    folder = _folder()
    if folder is None or name.partition(".")[0] not in _MODELS:
        return None
    path = folder.joinpath(*name.split("."))
    for file, is_package in ((path.with_suffix(".py"), False), (path / "__init__.py", True)):
        if file.is_file():
            return file, is_package
    return None


_ARCHIVE = "tensorflow_estimator.python.estimator"
# The archive's modules have names with this prefix in `sys.modules`, for code that looks up the module of a class.
_PREFIX = f"{__package__}.archived"

# Decorators for functions of the archive, by module and function name.
_ADDITIONS: dict[str, dict[str, Any]] = {
    "canned.optimizers": {"get_optimizer_instance_v2": accepting_keras_3},
    "keras_lib": {"model_to_estimator": refusing_keras_3},
}

_lock = threading.RLock()


def _import(
    name: str,
    globals: dict[str, Any] | None = None,
    locals: dict[str, Any] | None = None,
    fromlist: tuple[str, ...] | None = (),
    level: int = 0,
) -> Any:
    """Replaces `__import__` in the modules of the archive."""
    if level == 0 and name == "tensorflow":
        return tensorflow_with_keras_2()
    if level == 0 and (name == _ARCHIVE or name.startswith(_ARCHIVE + ".")):
        module = name[len(_ARCHIVE) + 1 :]
        if module in OUR_MODULES or not _is_package(module):
            return _found(module)
        return SimpleNamespace(**{short: _found(f"{module}.{short}".lstrip(".")) for short in fromlist or ()})
    return builtins.__import__(name, globals, locals, fromlist or (), level)


def _is_package(name: str) -> bool:
    if not name or any(ours.startswith(f"{name}.") for ours in OUR_MODULES):
        return True
    file = model_file(name)
    return file is not None and file[1]


def _found(name: str) -> Any:
    return OUR_MODULES[name] if name in OUR_MODULES else model_module(name)


def model_module(name: str) -> ModuleType:
    """Returns a module of the archive. The first call loads it."""
    full_name = f"{_PREFIX}.{name}"
    with _lock:
        module = sys.modules.get(full_name)
        if module is not None:
            return module
        found = model_file(name)
        if found is None:
            raise ModuleNotFoundError(f"No module named {_ARCHIVE + '.' + name!r}", name=f"{_ARCHIVE}.{name}")
        file, is_package = found
        spec = importlib.util.spec_from_file_location(
            full_name, file, submodule_search_locations=[] if is_package else None
        )
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _import}
        sys.modules[full_name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[full_name]
            raise
        for function, addition in _ADDITIONS.get(name, {}).items():
            setattr(module, function, addition(getattr(module, function)))
        return module


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
# The names of `tf.compat.v1.estimator` and `tf.estimator`, each with its module and its name in the archive.
V1 = _EITHER | _of_version("")
V2 = _EITHER | _of_version("V2") | {"model_to_estimator": ("keras_lib", "model_to_estimator")}
# The names of `experimental` in both interfaces, each with its module and its name in the archive.
EXPERIMENTAL = {
    "KMeans": ("canned.kmeans", "KMeansClustering"),
    "LinearSDCA": ("canned.linear", "LinearSDCA"),
    "RNNClassifier": ("canned.rnn", "RNNClassifier"),
    "RNNEstimator": ("canned.rnn", "RNNEstimator"),
    "dnn_logit_fn_builder": ("canned.dnn", "dnn_logit_fn_builder"),
    "linear_logit_fn_builder": ("canned.linear", "linear_logit_fn_builder"),
}


def canned_object(module: str, name: str, names: dict[str, tuple[str, str]]) -> Any:
    """Returns a class or function of the archive, as listed in a table of names. The first call loads the archive."""
    missing = absence()
    if missing is not None:
        raise absent_name_error(module, name, missing)
    path, short = names[name]
    return getattr(model_module(path), short)


# Alternatives to names that neither fastsup nor the archive has: pairs of a pattern and a sentence.
ALTERNATIVES = (
    (
        "BoostedTrees(Classifier|Estimator|Regressor)|DNNWithLayerAnnotationsClassifier",
        "TensorFlow 2.15 had it no more. Write a model_fn with Keras layers or variables, and pass it to "
        "fastsup.estimator.Estimator (`python -m fastsup docs estimator`).",
    ),
    (
        "tpu",
        "TPUs aren't supported. TPUEstimator ended with TensorFlow 2.15; on TPUs use tf.distribute.TPUStrategy with "
        "Keras or a custom training loop. On CPU and GPU, fastsup.install() brings tf.estimator.tpu, for use_tpu=False "
        "(`python -m fastsup docs migrating`).",
    ),
    (
        "ContinuousEvalListener|Eval(Result|Status)|Predictor|TrainingExecutor|read_eval_metrics",
        "it is a name of fastsup alone. Import it from fastsup.estimator.",
    ),
    (
        "SavedModelEstimator",
        "Load the model in a model_fn, with tf.saved_model.load, and pass that to fastsup.estimator.Estimator.",
    ),
)
