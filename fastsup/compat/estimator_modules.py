"""The modules of `tf.estimator` and tensorflow_estimator 2.15 that programs import, and the current objects in them.

The canned models, the heads, and their modules are loaded from the archive when a program uses them.
"""

from __future__ import annotations

from typing import Any

from fastsup.common.absent_names import alternative_to
from fastsup.compat.made_modules import GUIDE, LazyModule, names_of
from fastsup.estimator.canned.archive import (
    ALTERNATIVES,
    EXPERIMENTAL,
    V1,
    V2,
    absence,
    canned_object,
    is_installed,
    model_file,
    model_module,
)

__all__ = [
    "ALIASES",
    "API_V1",
    "API_V2",
    "MODULES",
    "OF_ARCHIVE",
    "PACKAGE",
    "PYTHON",
    "TPU_ONLY",
    "archived_module",
    "canonical_name",
    "is_package",
    "make_module",
]

PACKAGE = "tensorflow_estimator"
API_V1, API_V2 = f"{PACKAGE}._api.v1.estimator", f"{PACKAGE}._api.v2.estimator"
PYTHON = f"{PACKAGE}.python.estimator"

_OURS = "fastsup.estimator"
_TPU = "fastsup.compat.tpu"

_hooks = names_of(
    _OURS,
    "CheckpointSaverHook CheckpointSaverListener FeedFnHook FinalOpsHook GlobalStepWaiterHook LoggingTensorHook "
    "NanLossDuringTrainingError NanTensorHook ProfilerHook SecondOrStepTimer StepCounterHook StopAtStepHook "
    "SummarySaverHook",
)
_session_run = names_of(_OURS, "SessionRunArgs SessionRunContext SessionRunHook SessionRunValues")
_stopping = names_of(
    _OURS,
    "make_early_stopping_hook stop_if_higher_hook stop_if_lower_hook stop_if_no_decrease_hook stop_if_no_increase_hook",
)
_export_outputs = names_of(
    f"{_OURS}.export", "ClassificationOutput EvalOutput ExportOutput PredictOutput RegressionOutput TrainOutput"
)
_receivers = names_of(
    f"{_OURS}.export",
    "ServingInputReceiver SupervisedInputReceiver TensorServingInputReceiver UnsupervisedInputReceiver "
    "build_parsing_serving_input_receiver_fn build_raw_serving_input_receiver_fn "
    "build_raw_supervised_input_receiver_fn build_supervised_input_receiver_fn_from_input_fn",
)
_signatures = names_of(
    "tensorflow.python.saved_model.model_utils.export_utils",
    "build_all_signature_defs get_temp_export_dir get_timestamped_export_dir",
)
_numpy = names_of(f"{_OURS}.inputs", "numpy_input_fn")
_pandas = names_of(f"{_OURS}.inputs", "pandas_input_fn")
_in_memory = names_of(_OURS, "InMemoryEvaluatorHook make_stop_at_checkpoint_step_hook")
_jobs = names_of(_OURS, "EvalSpec TrainSpec train_and_evaluate")
_v1 = {"Estimator": f"{_OURS}.model.estimator.EstimatorV1"}
_model = names_of(_OURS, "EstimatorSpec ModeKeys RunConfig VocabInfo WarmStartSettings add_metrics")
_exporters = names_of(_OURS, "BestExporter Exporter FinalExporter LatestExporter")
_logit_fn = names_of(_OURS, "call_logit_fn")
_raw_supervised = names_of(f"{_OURS}.export", "build_raw_supervised_input_receiver_fn")
_api = _v1 | _model | _jobs | _exporters | _hooks | _session_run

# For each module of the public interface, by its name in `tf.estimator`: the paths of its names. An empty path stands
# for a submodule.
_API_MODULES: dict[str, dict[str, str]] = {
    "": _api | dict.fromkeys(("experimental", "export", "inputs", "tpu"), ""),
    "experimental": _stopping | _in_memory | _logit_fn | _raw_supervised,
    "export": _export_outputs | _receivers,
    "inputs": _numpy | _pandas,
    "tpu": names_of(_TPU, "InputPipelineConfig RunConfig TPUConfig TPUEstimator TPUEstimatorSpec")
    | {"experimental": ""},
    "tpu.experimental": {},
}

# Names in the modules of `tensorflow_estimator.python.estimator`.
_PYTHON_MODULES: dict[str, dict[str, str]] = {
    "": {},
    "canned.metric_keys": names_of(f"{_OURS}.canned.our_modules", "MetricKeys"),
    "canned.optimizers": names_of(f"{_OURS}.canned.our_modules", "get_optimizer_instance"),
    "canned.prediction_keys": names_of(f"{_OURS}.canned.our_modules", "PredictionKeys"),
    "early_stopping": _stopping
    | names_of(_OURS, "read_eval_metrics")
    | names_of(f"{_OURS}.hooks.stopping", "_CheckForStoppingHook _StopOnPredicateHook"),
    "estimator": _v1 | {"EstimatorV2": f"{_OURS}.Estimator"} | names_of(_OURS, "VocabInfo WarmStartSettings"),
    "estimator_export": names_of(f"{_OURS}.canned.our_modules", "estimator_export"),
    "estimator_lib": _v1 | _model | _jobs | _exporters | _stopping | _logit_fn | names_of(_TPU, "TPUEstimator"),
    "export": {},
    "export.export": _receivers | _signatures,
    "export.export_lib": _export_outputs | _receivers | _signatures,
    "export.export_output": _export_outputs,
    "exporter": _exporters
    | {
        "_SavedModelExporter": f"{_OURS}.export.exporters.SavedModelExporter",
        "_loss_smaller": f"{_OURS}.export.exporters._loss_smaller",
    },
    "extenders": names_of(_OURS, "add_metrics"),
    "gc": names_of(f"{_OURS}.export.export_gc", "Path")
    | {
        f"_{name}": f"{_OURS}.export.export_gc.{name}"
        for name in (
            "get_paths", "largest_export_versions", "mod_export_version", "negation", "one_of_every_n_export_versions",
            "union",
        )
    },
    "hooks": {},
    "hooks.basic_session_run_hooks": _hooks,
    "hooks.hooks": _in_memory,
    "hooks.session_run_hook": _session_run,
    "inputs": {},
    "inputs.inputs": _numpy | _pandas,
    "inputs.numpy_io": _numpy,
    "inputs.pandas_io": _pandas,
    "inputs.queues": {},
    "inputs.queues.feeding_queue_runner": {"_FeedingQueueRunner": f"{_OURS}.inputs.in_memory.FeedingQueueRunner"},
    "mode_keys": names_of(_OURS, "ModeKeys"),
    "model_fn": _logit_fn
    | names_of(_OURS, "EstimatorSpec ModeKeys")
    | names_of(f"{_OURS}.canned.our_modules", "AVERAGE_LOSS_METRIC_KEY LOSS_METRIC_KEY")
    | names_of(f"{_OURS}.model.model_fn", "verify_model_fn_args")
    | {"_TPUEstimatorSpec": f"{_TPU}.TPUEstimatorSpec"},
    "run_config": names_of(_OURS, "RunConfig TaskType")
    | names_of(f"{_OURS}.config.run_config", "path_to_str")
    | {"get_default_session_config": f"{_OURS}.config.run_config._default_session_config"},
    "tpu": {},
    "tpu.tpu_config": names_of(_TPU, "InputPipelineConfig RunConfig TPUConfig"),
    "tpu.tpu_context": {},
    "tpu.tpu_estimator": names_of(_TPU, "ExamplesPerSecondHook TPUEstimator TPUEstimatorSpec"),
    "tpu.util": names_of(
        _TPU, "IterationsPerLoopCounter check_positive_integer parse_iterations_per_loop"
    ),
    "training": _jobs
    | {"_assert_eval_spec": f"{_OURS}.jobs.specs.assert_eval_spec"}
    | {
        f"_{name}": f"{_OURS}.{name}"
        for name in (
            "ContinuousEvalListener", "EvalResult", "EvalStatus", "NewCheckpointListenerForEvaluate", "StopAtSecsHook",
            "TrainingExecutor",
        )
    },
    "util": names_of("tensorflow.python.util.function_utils", "fn_args")
    | names_of(
        f"{_OURS}.inputs.input_fn",
        "DistributedIteratorInitializerHook _DatasetInitializerHook parse_input_fn_result parse_iterator_result",
    ),
}  # fmt: skip

# Modules that also exist without the archive, so that errors can name the package to install. With the archive, all its
# modules of models exist.
OF_ARCHIVE = tuple(
    f"{PYTHON}.{name}"
    for name in (
        "canned", "canned.baseline", "canned.dnn", "canned.dnn_linear_combined", "canned.head", "canned.kmeans",
        "canned.linear", "canned.parsing_utils", "canned.rnn", "head", "head.base_head", "head.binary_class_head",
        "head.head_utils", "head.multi_class_head", "head.multi_head", "head.multi_label_head", "head.regression_head",
        "head.sequential_head", "keras_lib",
    )
)  # fmt: skip
TPU_ONLY = (f"{API_V1}.tpu.experimental", f"{PYTHON}.tpu.tpu_context")

# The names in every module, by the module's full name.
MODULES: dict[str, dict[str, str]] = {
    PACKAGE: {"estimator": ""},
    **{f"{PACKAGE}.{name}": {} for name in ("_api", "_api.v1", "_api.v2", "python")},
    **{f"{API_V1}.{name}".rstrip("."): names for name, names in _API_MODULES.items()},
    **{f"{PYTHON}.{name}".rstrip("."): names for name, names in _PYTHON_MODULES.items()},
    # The two versions differ only in their canned models and in Estimator.
    API_V2: _API_MODULES[""] | names_of(_OURS, "Estimator"),
    **{name: {} for name in OF_ARCHIVE},
}
# Aliases of these modules. The import hook adds TensorFlow's own copies of its interface.
ALIASES = {
    f"{PACKAGE}.estimator": API_V1,
    f"{PACKAGE}.python.estimator.api._v1": f"{PACKAGE}._api.v1",
    f"{PACKAGE}.python.estimator.api._v2": f"{PACKAGE}._api.v2",
    f"{PACKAGE}.python.estimator.api": f"{PACKAGE}._api",
    "tensorflow.python.estimator": PYTHON,
    f"{PYTHON}.keras": f"{PYTHON}.keras_lib",
    **{f"{API_V2}.{name}": f"{API_V1}.{name}" for name in _API_MODULES if name and "." not in name},
}


_NO_TPU = f"TPUs aren't supported. TPUEstimator trains on CPU and GPU with use_tpu=False. {GUIDE}"
# The canned models in public modules.
_CANNED = {API_V1: V1, API_V2: V2, f"{API_V1}.experimental": EXPERIMENTAL}


def archived_module(name: str) -> str | None:
    """Returns the archive's short name for a canonical module name, or None if the archive doesn't provide it."""
    if not name.startswith(f"{PYTHON}.") or (name in MODULES and name not in OF_ARCHIVE):
        return None
    short = name.removeprefix(f"{PYTHON}.")
    if short in ("canned", "head"):
        return None
    return short if is_installed() and model_file(short) is not None else None


def canonical_name(name: str) -> str | None:
    """Resolves the aliases in a full module name. Returns None if the module isn't provided here."""
    changed = True
    while changed:
        changed = False
        for alias, target in ALIASES.items():
            if f"{name}.".startswith(f"{alias}."):
                name, changed = target + name[len(alias) :], True
                break
    return name if name in MODULES or archived_module(name) is not None else None


def is_package(name: str) -> bool:
    """Returns True if a module has submodules. `name` is its canonical name."""
    archived = archived_module(name)
    if archived is not None:
        found = model_file(archived)
        return found is not None and found[1]
    return any(other.startswith(f"{name}.") for other in (*MODULES, *ALIASES))


def make_module(name: str) -> LazyModule:
    """Creates a module, given its canonical name."""
    shown = name.replace(API_V1, "tf.estimator").replace(API_V2, "tf.estimator")
    models = _CANNED.get(name, {})
    # If fastsup and the archive both have a module, such as `canned.optimizers`, its other names come from the archive.
    short = name.removeprefix(f"{PYTHON}.")
    with_archive = short != name and is_installed() and model_file(short) is not None

    def find(missing: str) -> Any:
        if missing in models:
            return canned_object(shown, missing, models)
        return getattr(model_module(short), missing, None) if with_archive else None

    def alternative(missing: str) -> str | None:
        if name in TPU_ONLY:
            return _NO_TPU
        reason = absence() if name in OF_ARCHIVE else None
        return alternative_to(missing, ALTERNATIVES) if reason is None else f"{reason} {GUIDE}"

    return LazyModule(name, shown, MODULES[name], find, alternative, models if is_installed() else ())
