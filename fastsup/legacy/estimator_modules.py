"""The modules of `tf.estimator` and of the package tensorflow_estimator 2.15, with the names that programs import.

A name of a module is written as the path of what it is here. "Name" alone is `fastsup.estimator.Name`, "Name=path" is
what has that path.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from fastsup.legacy.absent_module import HelpfulModule

__all__ = ["API", "PACKAGE", "canonical_name", "fill_module", "is_package", "make_module"]

PACKAGE = "tensorflow_estimator"
API = f"{PACKAGE}._api.v1.estimator"
_PYTHON = f"{PACKAGE}.python.estimator"

_HOOKS = (
    "CheckpointSaverHook CheckpointSaverListener FeedFnHook FinalOpsHook GlobalStepWaiterHook LoggingTensorHook "
    "NanLossDuringTrainingError NanTensorHook ProfilerHook SecondOrStepTimer StepCounterHook StopAtStepHook "
    "SummarySaverHook"
)
_SESSION_RUN = "SessionRunArgs SessionRunContext SessionRunHook SessionRunValues"
_STOPPING = (
    "make_early_stopping_hook stop_if_higher_hook stop_if_lower_hook stop_if_no_decrease_hook stop_if_no_increase_hook"
)
_EXPORT_OUTPUTS = " ".join(
    f"{name}=fastsup.estimator.export.{name}"
    for name in (
        "ClassificationOutput", "EvalOutput", "ExportOutput", "PredictOutput", "RegressionOutput", "TrainOutput",
    )
)  # fmt: skip
_RECEIVERS = " ".join(
    f"{name}=fastsup.estimator.export.{name}"
    for name in (
        "ServingInputReceiver", "SupervisedInputReceiver", "TensorServingInputReceiver", "UnsupervisedInputReceiver",
        "build_parsing_serving_input_receiver_fn", "build_raw_serving_input_receiver_fn",
        "build_raw_supervised_input_receiver_fn", "build_supervised_input_receiver_fn_from_input_fn",
    )
)  # fmt: skip
_SIGNATURES = " ".join(
    f"{name}=tensorflow.python.saved_model.model_utils.export_utils.{name}"
    for name in ("build_all_signature_defs", "get_temp_export_dir", "get_timestamped_export_dir")
)
_NUMPY = "numpy_input_fn=fastsup.estimator.inputs.numpy_input_fn"
_PANDAS = "pandas_input_fn=fastsup.estimator.inputs.pandas_input_fn"
_TPU_NAMES = ("InputPipelineConfig", "RunConfig", "TPUConfig", "TPUEstimator", "TPUEstimatorSpec")
_TPU = " ".join(f"{name}=fastsup.legacy.tpu.{name}" for name in _TPU_NAMES)
_IN_MEMORY = "InMemoryEvaluatorHook make_stop_at_checkpoint_step_hook"
_JOBS = "EvalSpec TrainSpec train_and_evaluate"
_MODEL = "Estimator EstimatorSpec ModeKeys RunConfig VocabInfo WarmStartSettings add_metrics"
_EXPORTERS = "BestExporter Exporter FinalExporter LatestExporter"

# Modules of the public interface, under `tf.estimator`.
_API_MODULES: dict[str, str] = {
    "": f"{_MODEL} {_JOBS} {_EXPORTERS} {_HOOKS} {_SESSION_RUN}",
    "experimental": f"{_STOPPING} {_IN_MEMORY} call_logit_fn "
    "build_raw_supervised_input_receiver_fn=fastsup.estimator.export.build_raw_supervised_input_receiver_fn",
    "export": f"{_EXPORT_OUTPUTS} {_RECEIVERS}",
    "inputs": f"{_NUMPY} {_PANDAS}",
    "tpu": _TPU,
    "tpu.experimental": "",
}

# Modules under `tensorflow_estimator.python.estimator`.
_PYTHON_MODULES: dict[str, str] = {
    "": "",
    "canned.metric_keys": "MetricKeys=fastsup.legacy.canned_names.MetricKeys",
    "canned.optimizers": "get_optimizer_instance=fastsup.legacy.canned_names.get_optimizer_instance",
    "canned.prediction_keys": "PredictionKeys=fastsup.legacy.canned_names.PredictionKeys",
    "early_stopping": f"{_STOPPING} read_eval_metrics "
    "_CheckForStoppingHook=fastsup.estimator.hooks.early_stopping._CheckForStoppingHook "
    "_StopOnPredicateHook=fastsup.estimator.hooks.early_stopping._StopOnPredicateHook",
    "estimator": "Estimator EstimatorV2=fastsup.estimator.Estimator VocabInfo WarmStartSettings",
    "estimator_export": "estimator_export=fastsup.legacy.estimator_helpers.estimator_export",
    "estimator_lib": f"{_MODEL} {_JOBS} {_EXPORTERS} {_STOPPING} call_logit_fn "
    "TPUEstimator=fastsup.legacy.tpu.TPUEstimator",
    "export": "",
    "export.export": f"{_RECEIVERS} {_SIGNATURES}",
    "export.export_lib": f"{_EXPORT_OUTPUTS} {_RECEIVERS} {_SIGNATURES}",
    "export.export_output": _EXPORT_OUTPUTS,
    "exporter": f"{_EXPORTERS} _SavedModelExporter=fastsup.estimator.export.exporters.SavedModelExporter "
    "_loss_smaller=fastsup.estimator.export.best_exporter._loss_smaller",
    "extenders": "add_metrics",
    "gc": " ".join(
        f"{name}=fastsup.legacy.export_gc.{name.lstrip('_')}"
        for name in (
            "Path", "_get_paths", "_largest_export_versions", "_mod_export_version", "_negation",
            "_one_of_every_n_export_versions", "_union",
        )
    ),
    "hooks": "",
    "hooks.basic_session_run_hooks": _HOOKS,
    "hooks.hooks": _IN_MEMORY,
    "hooks.session_run_hook": _SESSION_RUN,
    "inputs": "",
    "inputs.inputs": f"{_NUMPY} {_PANDAS}",
    "inputs.numpy_io": _NUMPY,
    "inputs.pandas_io": _PANDAS,
    "inputs.queues": "",
    "inputs.queues.feeding_queue_runner":
        "_FeedingQueueRunner=fastsup.estimator.inputs.feeding_queue.FeedingQueueRunner",
    "mode_keys": "ModeKeys",
    "model_fn": "EstimatorSpec ModeKeys call_logit_fn "
    "AVERAGE_LOSS_METRIC_KEY=fastsup.legacy.estimator_helpers.AVERAGE_LOSS_METRIC_KEY "
    "LOSS_METRIC_KEY=fastsup.legacy.estimator_helpers.LOSS_METRIC_KEY "
    "_TPUEstimatorSpec=fastsup.legacy.tpu.TPUEstimatorSpec "
    "verify_model_fn_args=fastsup.estimator.model.model_fn.verify_model_fn_args",
    "run_config": "RunConfig TaskType "
    "get_default_session_config=fastsup.estimator.config.run_config._default_session_config "
    "path_to_str=fastsup.estimator.config.run_config.path_to_str",
    "tpu": "",
    "tpu.tpu_config": " ".join(
        f"{name}=fastsup.legacy.tpu.{name}" for name in ("InputPipelineConfig", "RunConfig", "TPUConfig")
    ),
    "tpu.tpu_context": "",
    "tpu.tpu_estimator": " ".join(
        f"{name}=fastsup.legacy.tpu.{name}" for name in ("ExamplesPerSecondHook", "TPUEstimator", "TPUEstimatorSpec")
    ),
    "tpu.util": " ".join(
        f"{name}=fastsup.legacy.tpu.arguments.{name}"
        for name in ("IterationsPerLoopCounter", "check_positive_integer", "parse_iterations_per_loop")
    ),
    "training": f"{_JOBS} _assert_eval_spec=fastsup.estimator.jobs.specs.assert_eval_spec "
    + " ".join(
        f"_{name}=fastsup.estimator.{name}"
        for name in (
            "ContinuousEvalListener", "EvalResult", "EvalStatus", "NewCheckpointListenerForEvaluate", "StopAtSecsHook",
            "TrainingExecutor",
        )
    ),
    "util": "fn_args=tensorflow.python.util.function_utils.fn_args "
    + " ".join(
        f"{name}=fastsup.estimator.inputs.input_fn.{name}"
        for name in (
            "DistributedIteratorInitializerHook", "_DatasetInitializerHook", "parse_input_fn_result",
            "parse_iterator_result",
        )
    ),
}  # fmt: skip

_CANNED = (
    "canned models aren't in fastsup yet. Write a model_fn with Keras layers or variables, and pass it to "
    "tf.estimator.Estimator."
)
_HEADS = (
    "heads aren't in fastsup yet. Compute the loss, the predictions and the metrics in the model_fn, and return a "
    "tf.estimator.EstimatorSpec."
)
_KERAS = (
    "model_to_estimator isn't in fastsup yet. Call the Keras model in a model_fn, and pass that to "
    "tf.estimator.Estimator; or train the model with its own fit()."
)
_TPU_ONLY = "TPUs aren't supported. TPUEstimator trains on CPU and GPU with use_tpu=False."

# Modules whose other names aren't there yet: the sentence for each of their names.
_EMPTY: dict[str, str] = {
    **dict.fromkeys(
        (
            "canned", "canned.baseline", "canned.boosted_trees", "canned.dnn", "canned.dnn_linear_combined",
            "canned.kmeans", "canned.linear", "canned.optimizers", "canned.parsing_utils", "canned.rnn",
        ),
        _CANNED,
    ),
    **dict.fromkeys(
        (
            "canned.head", "head", "head.base_head", "head.binary_class_head", "head.multi_class_head",
            "head.multi_head", "head.multi_label_head", "head.regression_head",
        ),
        _HEADS,
    ),
    "keras": _KERAS,
    "keras_lib": _KERAS,
    "tpu.tpu_context": _TPU_ONLY,
}  # fmt: skip


def _tree() -> dict[str, tuple[str, str | None]]:
    """Every module by its full name: its names, and the sentence for each name that it lacks."""
    tree: dict[str, tuple[str, str | None]] = dict.fromkeys(
        (PACKAGE, f"{PACKAGE}._api", f"{PACKAGE}._api.v1", f"{PACKAGE}.python"), ("", None)
    )
    for root, modules in ((API, _API_MODULES), (_PYTHON, _PYTHON_MODULES)):
        for name, names in modules.items():
            tree[f"{root}.{name}".rstrip(".")] = (names, _EMPTY.get(name) if root == _PYTHON else None)
    for name, missing in _EMPTY.items():
        tree.setdefault(f"{_PYTHON}.{name}", ("", missing))
    tree[f"{API}.tpu.experimental"] = ("", _TPU_ONLY)
    return tree


_MODULES = _tree()
# Other names of the same modules. TensorFlow's own copies of its interface are added by the import hook.
_ALIASES = {
    f"{PACKAGE}.estimator": API,
    f"{PACKAGE}._api.v2.estimator": API,
    f"{PACKAGE}._api.v2": f"{PACKAGE}._api.v1",
    f"{PACKAGE}.python.estimator.api._v1.estimator": API,
    f"{PACKAGE}.python.estimator.api._v2.estimator": API,
    f"{PACKAGE}.python.estimator.api._v1": f"{PACKAGE}._api.v1",
    f"{PACKAGE}.python.estimator.api._v2": f"{PACKAGE}._api.v1",
    f"{PACKAGE}.python.estimator.api": f"{PACKAGE}._api",
    "tensorflow.python.estimator": _PYTHON,
}


def canonical_name(name: str) -> str | None:
    """The module that a name means, by its own name; None if it is none of these.

    Args:
      name: full name of a module.
    """
    for alias, target in _ALIASES.items():
        if name == alias or name.startswith(alias + "."):
            name = target + name[len(alias) :]
            break
    return name if name in _MODULES else None


def is_package(name: str) -> bool:
    """Whether a module has modules in it. `name` is its own name."""
    return any(other.startswith(name + ".") for other in _MODULES)


def _resolved(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def make_module(name: str) -> ModuleType:
    """A new module, still without its names.

    Args:
      name: its own name.
    """
    shown = f"tf.estimator{name[len(API) :]}" if name.startswith(API) else name
    return HelpfulModule(name, f"The names of {shown}, which are fastsup's.", shown, _MODULES[name][1])


def fill_module(module: ModuleType) -> None:
    """Gives a new module its names, once it can be imported.

    Args:
      module: the module.
    """
    name, contents = module.__name__, vars(module)
    for entry in _MODULES[name][0].split():
        short, _, path = entry.partition("=")
        contents[short] = _resolved(path or f"fastsup.estimator.{short}")
    if name == PACKAGE:
        contents["estimator"] = importlib.import_module(API)
    for other in _MODULES:
        # `tf.estimator.export` is there without an import of its own.
        if other.rpartition(".")[0] == name and other.startswith(API):
            contents[other.rpartition(".")[2]] = importlib.import_module(other)
    contents["__all__"] = sorted(short for short in contents if not short.startswith("_"))
