"""The modules of `tf.estimator` and of the package tensorflow_estimator 2.15, with the names that programs import.

A name of a module is written as the path of what it is here. "Name" alone is `fastsup.estimator.Name`, "Name=path" is
what has that path. The canned models and heads, and the modules that hold them, come from the archive when a program
uses them.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from fastsup.estimator.canned.archive import absence, is_installed, model_file
from fastsup.estimator.canned.loader import model_module
from fastsup.estimator.canned.names import EXPERIMENTAL, V1, V2, canned_object
from fastsup.legacy.absent_module import HelpfulModule

__all__ = [
    "API_V1",
    "API_V2",
    "PACKAGE",
    "archived_module",
    "canonical_name",
    "fill_module",
    "is_package",
    "make_module",
]

PACKAGE = "tensorflow_estimator"
API_V1, API_V2 = f"{PACKAGE}._api.v1.estimator", f"{PACKAGE}._api.v2.estimator"
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
_V1 = "Estimator=fastsup.estimator.model.estimator.EstimatorV1"
_MODEL = "EstimatorSpec ModeKeys RunConfig VocabInfo WarmStartSettings add_metrics"
_EXPORTERS = "BestExporter Exporter FinalExporter LatestExporter"

# Modules of the public interface, under `tf.estimator`.
_API_MODULES: dict[str, str] = {
    "": f"{_V1} {_MODEL} {_JOBS} {_EXPORTERS} {_HOOKS} {_SESSION_RUN}",
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
    "estimator": f"{_V1} EstimatorV2=fastsup.estimator.Estimator VocabInfo WarmStartSettings",
    "estimator_export": "estimator_export=fastsup.estimator.canned.our_modules.estimator_export",
    "estimator_lib": f"{_V1} {_MODEL} {_JOBS} {_EXPORTERS} {_STOPPING} call_logit_fn "
    "TPUEstimator=fastsup.legacy.tpu.TPUEstimator",
    "export": "",
    "export.export": f"{_RECEIVERS} {_SIGNATURES}",
    "export.export_lib": f"{_EXPORT_OUTPUTS} {_RECEIVERS} {_SIGNATURES}",
    "export.export_output": _EXPORT_OUTPUTS,
    "exporter": f"{_EXPORTERS} _SavedModelExporter=fastsup.estimator.export.exporters.SavedModelExporter "
    "_loss_smaller=fastsup.estimator.export.best_exporter._loss_smaller",
    "extenders": "add_metrics",
    "gc": " ".join(
        f"{name}=fastsup.estimator.export.export_gc.{name.lstrip('_')}"
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
    "AVERAGE_LOSS_METRIC_KEY=fastsup.estimator.canned.our_modules.AVERAGE_LOSS_METRIC_KEY "
    "LOSS_METRIC_KEY=fastsup.estimator.canned.our_modules.LOSS_METRIC_KEY "
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

_TPU_ONLY = "TPUs aren't supported. TPUEstimator trains on CPU and GPU with use_tpu=False."
# Modules that are there without the archive too, to say what to install. With it, all its modules of models are there.
_OF_ARCHIVE = (
    "canned", "canned.baseline", "canned.dnn", "canned.dnn_linear_combined", "canned.head", "canned.kmeans",
    "canned.linear", "canned.parsing_utils", "canned.rnn", "head", "head.base_head", "head.binary_class_head",
    "head.head_utils", "head.multi_class_head", "head.multi_head", "head.multi_label_head", "head.regression_head",
    "head.sequential_head", "keras_lib",
)  # fmt: skip
# What programs find in a module without importing it: the tables of lazily made names.
_FINDABLE = {API_V1: V1, API_V2: V2, f"{API_V1}.experimental": EXPERIMENTAL}


def _tree() -> dict[str, str]:
    """Every module by its full name, with its names."""
    tree = dict.fromkeys(
        (PACKAGE, f"{PACKAGE}._api", f"{PACKAGE}._api.v1", f"{PACKAGE}._api.v2", f"{PACKAGE}.python"), ""
    )
    for root, modules in ((API_V1, _API_MODULES), (_PYTHON, _PYTHON_MODULES)):
        tree.update((f"{root}.{name}".rstrip("."), names) for name, names in modules.items())
    tree[API_V2] = _API_MODULES[""].replace(_V1, "Estimator")
    for name in (*_OF_ARCHIVE, "tpu.tpu_context"):
        tree.setdefault(f"{_PYTHON}.{name}", "")
    return tree


_MODULES = _tree()
# Other names of the same modules. TensorFlow's own copies of its interface are added by the import hook.
_ALIASES = {
    f"{PACKAGE}.estimator": API_V1,
    f"{PACKAGE}.python.estimator.api._v1": f"{PACKAGE}._api.v1",
    f"{PACKAGE}.python.estimator.api._v2": f"{PACKAGE}._api.v2",
    f"{PACKAGE}.python.estimator.api": f"{PACKAGE}._api",
    "tensorflow.python.estimator": _PYTHON,
    f"{_PYTHON}.keras": f"{_PYTHON}.keras_lib",
    # The two versions differ in their canned models and in Estimator alone.
    **{f"{API_V2}.{name}": f"{API_V1}.{name}" for name in _API_MODULES if name and "." not in name},
}


def _is_at_or_in(name: str, other: str) -> bool:
    return name == other or name.startswith(other + ".")


def archived_module(name: str) -> str | None:
    """The module of the archive that a name means, by its name there; None if it means none.

    Args:
      name: a canonical name.
    """
    short = name[len(_PYTHON) + 1 :]
    if not name.startswith(_PYTHON + ".") or short in _PYTHON_MODULES or short in ("canned", "head"):
        return None
    return short if is_installed() and model_file(short) is not None else None


def canonical_name(name: str) -> str | None:
    """The module that a name means, by its own name; None if it is none of these.

    Args:
      name: full name of a module.
    """
    changed = True
    while changed:
        changed = False
        for alias, target in _ALIASES.items():
            if _is_at_or_in(name, alias):
                name, changed = target + name[len(alias) :], True
                break
    return name if name in _MODULES or archived_module(name) is not None else None


def is_package(name: str) -> bool:
    """Whether a module has modules in it. `name` is its own name."""
    archived = archived_module(name)
    if archived is not None:
        found = model_file(archived)
        return found is not None and found[1]
    return any(other.startswith(name + ".") for other in (*_MODULES, *_ALIASES))


def _resolved(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def make_module(name: str) -> ModuleType:
    """A new module, still without its names.

    Args:
      name: its own name.
    """
    doc, missing = f"The names of {name}, which are fastsup's.", None
    if name in _FINDABLE:
        table, shown = _FINDABLE[name], f"tf.estimator{name[len(API_V1) :]}"
        return HelpfulModule(
            name,
            doc,
            shown,
            find=lambda short: canned_object(shown, short, table) if short in table else None,
            findable=table if is_installed() else (),
        )
    module = name[len(_PYTHON) + 1 :]
    if _is_at_or_in(name, f"{API_V1}.tpu.experimental") or module == "tpu.tpu_context":
        missing = _TPU_ONLY
    elif module in _OF_ARCHIVE:
        missing = absence()
    shown = f"tf.estimator{name[len(API_V1) :]}" if name.startswith(API_V1) else name
    # A module of fastsup that the archive has as well, such as `canned.optimizers`, has the other names from there.
    with_archive = name.startswith(_PYTHON + ".") and is_installed() and model_file(module) is not None
    return HelpfulModule(
        name,
        doc,
        shown,
        missing,
        find=lambda short: getattr(model_module(module), short, None) if with_archive else None,
    )


def fill_module(module: ModuleType) -> None:
    """Gives a new module its names, once it can be imported.

    Args:
      module: the module.
    """
    name, contents = module.__name__, vars(module)
    for entry in _MODULES[name].split():
        short, _, path = entry.partition("=")
        contents[short] = _resolved(path or f"fastsup.estimator.{short}")
    if name == PACKAGE:
        contents["estimator"] = importlib.import_module(API_V1)
    root = API_V1 if name == API_V2 else name
    for other in _MODULES:
        # `tf.estimator.export` is there without an import of its own.
        if other.rpartition(".")[0] == root and other.startswith(API_V1):
            contents[other.rpartition(".")[2]] = importlib.import_module(other)
    contents["__all__"] = sorted(short for short in contents if not short.startswith("_"))
