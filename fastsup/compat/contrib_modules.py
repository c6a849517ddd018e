"""The modules of `tf.contrib` that programs import, with the current object for each name, or an alternative.

Module names omit "tensorflow.contrib.". Each name maps to the path of an object, in which the prefix "tf." stands for
`tf.compat.v1`. The object is imported when a program uses the name.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from fastsup.common.absent_names import absent_module_error, alternative_to
from fastsup.compat.made_modules import GUIDE, LazyModule, names_of
from fastsup.contrib.alternatives import ALTERNATIVES

__all__ = [
    "CONTRIB",
    "LIBRARIES",
    "LIBRARY_MODULES",
    "MODULES",
    "is_package",
    "library_module",
    "make_module",
    "missing_module",
    "own_name",
]

_LEARN = "fastsup.contrib.learn"
_TRAINING = "fastsup.contrib.training"
_HOOKS = "tensorflow.python.training.basic_session_run_hooks"
_MONITORED = "tensorflow.python.training.monitored_session"
_SESSION_RUN = "tensorflow.python.training.session_run_hook"
_SUMMARY = "tensorflow.python.ops.summary_ops_v2"
_LOOKUP = "tensorflow.python.ops.lookup_ops"
_PREDICTOR = "fastsup.contrib.predictor"
_TPU = "fastsup.compat.tpu"
_SMART = "tensorflow.python.framework.smart_cond"
_CHECKPOINTS = "tensorflow.python.training.checkpoint_utils"

_of_hooks = names_of(
    _HOOKS,
    "LoggingTensorHook StopAtStepHook CheckpointSaverHook StepCounterHook NanLossDuringTrainingError NanTensorHook "
    "SummarySaverHook",
)
_nan_error = names_of(_HOOKS, "NanLossDuringTrainingError")
_of_monitors = (
    names_of(
        f"{_LEARN}.monitors",
        "BaseMonitor CaptureVariable CheckpointSaver EveryN ExportMonitor GraphDump LoggingTrainable NanLoss "
        "PrintTensor StepCounter StopAtStep SummarySaver ValidationMonitor get_default_monitors",
    )
    | names_of("fastsup.experiment.monitor_hooks", "RunHookAdapterForMonitors replace_monitors_with_hooks")
    | _nan_error
)
_of_input_ops = names_of(
    f"{_LEARN}.exports", "InputFnOps build_default_serving_input_fn build_parsing_serving_input_fn"
)
_of_exports = names_of(
    f"{_LEARN}.exports",
    "BestModelSelector extend_export_strategy garbage_collect_exports get_most_recent_export "
    "make_best_model_export_strategy make_export_strategy make_parsing_export_strategy",
) | names_of("tensorflow.python.saved_model.model_utils.export_utils", "get_temp_export_dir get_timestamped_export_dir")
_estimator = names_of(f"{_LEARN}.estimator", "Estimator")
_metric_key = names_of(f"{_LEARN}.model", "MetricKey")
_of_model_fn = names_of(f"{_LEARN}.model", "ModeKeys ModelFnOps")
_prediction_key = names_of(f"{_LEARN}.model", "PredictionKey")
_problem_type = names_of(f"{_LEARN}.model", "ProblemType")
_of_run_config = (
    names_of(f"{_LEARN}.estimator", "ClusterConfig RunConfig")
    | names_of(f"{_LEARN}.model", "Environment")
    | names_of("fastsup.estimator", "TaskType")
)
_of_estimators = (
    _estimator
    | names_of(f"{_LEARN}.estimator", "NotFittedError")
    | _metric_key
    | _of_model_fn
    | _prediction_key
    | _problem_type
    | _of_run_config
)
_evaluable = names_of(f"{_LEARN}.estimator", "Evaluable")
_trainable = names_of(f"{_LEARN}.estimator", "Trainable")
_metric_spec = names_of(f"{_LEARN}.model", "MetricSpec")
_experiment = names_of("fastsup.experiment", "Experiment")
_export_strategy = names_of("fastsup.experiment", "ExportStrategy")
_make_export_strategy = names_of(f"{_LEARN}.exports", "make_export_strategy")
_of_inputs = names_of("fastsup.estimator.inputs", "numpy_input_fn pandas_input_fn")
_of_inference = names_of(f"{_LEARN}.inference", "infer run_feeds run_feeds_iter run_n")
_of_runner = names_of("fastsup.experiment.learn_runner", "run tune")
_of_learn = (
    _of_estimators
    | _evaluable
    | _trainable
    | _metric_spec
    | _experiment
    | _export_strategy
    | _make_export_strategy
    | _nan_error
    | names_of(f"{_LEARN}.inference", "infer run_feeds run_n")
    | names_of(f"{_LEARN}.exports", "InputFnOps build_parsing_serving_input_fn")
)
_of_evaluation = (
    names_of(_TRAINING, "SummaryAtEndHook evaluate_once evaluate_repeatedly get_or_create_eval_step")
    | names_of("fastsup.estimator.model.evaluate_once", "StopAfterNEvalsHook")
    | names_of(_CHECKPOINTS, "checkpoints_iterator wait_for_new_checkpoint")
)
_of_train = names_of(
    _TRAINING,
    "add_gradients_summaries clip_gradient_norms clip_gradient_norms_fn create_train_op multiply_gradients train",
)
_of_hparams = names_of("fastsup.contrib.hparams", "HParams parse_values")
_of_placement = names_of(_TRAINING, "GreedyLoadBalancingStrategy RandomStrategy byte_size_load_fn")
_of_tuner = names_of(_TRAINING, "Tuner")
_of_queue = names_of("fastsup.estimator.inputs.in_memory", "FeedingQueueRunner")
_of_training = _of_evaluation | _of_train | _of_hparams | _of_placement | _of_tuner | _of_queue
_of_tpu = names_of(_TPU, "InputPipelineConfig RunConfig TPUConfig TPUEstimator TPUEstimatorSpec") | names_of(
    "tf.tpu",
    "CrossShardOptimizer batch_parallel bfloat16_scope core cross_replica_sum initialize_system outside_compilation "
    "replicate rewrite shard shutdown_system",
)
_of_estimator = names_of(
    "fastsup.estimator.experimental",
    "InMemoryEvaluatorHook make_early_stopping_hook make_stop_at_checkpoint_step_hook stop_if_higher_hook "
    "stop_if_lower_hook stop_if_no_decrease_hook stop_if_no_increase_hook",
) | names_of("fastsup.estimator", "add_metrics read_eval_metrics")  # fmt: skip
_of_framework = (
    names_of(_SMART, "smart_case smart_cond smart_constant_value")
    | names_of(_CHECKPOINTS, "init_from_checkpoint list_variables load_checkpoint load_variable")
    | names_of(
        "tensorflow.python.training.training_util",
        "create_global_step get_global_step get_or_create_global_step assert_global_step",
    )
    | names_of(
        "tf", "TensorSpec argsort is_tensor py_func sort is_non_decreasing is_strictly_increasing is_numeric_tensor"
    )
    | names_of("tf.nn", "zero_fraction")
    | names_of("tensorflow.python.util.deprecation", "deprecated deprecated_arg_values deprecated_args")
    | {"arg_scope": "tf_slim.ops.arg_scope.arg_scope", "nest": "tensorflow.python.util.nest"}
)
_of_lookup = (
    names_of(
        _LOOKUP,
        "FastHashSpec HasherSpec IdTableWithHashBuckets InitializableLookupTableBase KeyValueTensorInitializer "
        "LookupInterface MutableHashTable StrongHashSpec TextFileIdTableInitializer TextFileIndex "
        "TextFileInitializer TextFileStringTableInitializer index_table_from_file index_to_string_table_from_file",
    )
    | names_of(
        "fastsup.contrib.lookup",
        "index_table_from_tensor index_to_string index_to_string_table_from_tensor string_to_index "
        "string_to_index_table_from_file string_to_index_table_from_tensor",
    )
    | {
        "HashTable": f"{_LOOKUP}.StaticHashTableV1",
        "MutableDenseHashTable": f"{_LOOKUP}.DenseHashTable",
        "TableInitializerBase": f"{_LOOKUP}.TableInitializerBase",
    }
)
_of_predictor = names_of(_PREDICTOR, "from_contrib_estimator from_estimator from_saved_model")
_of_core_cells = names_of(
    # Use direct paths to the cells, because the names in `tf.compat.v1.nn.rnn_cell` need the package tf_keras.
    "tensorflow.python.keras.layers.legacy_rnn.rnn_cell_impl",
    "BasicLSTMCell BasicRNNCell DeviceWrapper DropoutWrapper GRUCell LSTMCell LSTMStateTuple MultiRNNCell RNNCell "
    "ResidualWrapper",
) | names_of("tf.nn", "static_bidirectional_rnn static_rnn static_state_saving_rnn")

MODULES: dict[str, dict[str, str]] = {
    "": {},
    "cluster_resolver": names_of(
        "tf.distribute.cluster_resolver",
        "ClusterResolver GCEClusterResolver KubernetesClusterResolver SimpleClusterResolver SlurmClusterResolver "
        "TFConfigClusterResolver TPUClusterResolver UnionResolver",
    )
    | {"UnionClusterResolver": "tf.distribute.cluster_resolver.UnionResolver"},
    "data": names_of(
        "tf.data.experimental",
        "AUTOTUNE Counter CsvDataset Optional RandomDataset Reducer SqlDataset TFRecordWriter "
        "bucket_by_sequence_length choose_from_datasets copy_to_device dense_to_sparse_batch enumerate_dataset "
        "get_next_as_optional get_single_element group_by_reducer group_by_window ignore_errors "
        "make_batched_features_dataset make_csv_dataset make_saveable_from_iterator map_and_batch "
        "parallel_interleave parse_example_dataset prefetch_to_device rejection_resample sample_from_datasets scan "
        "shuffle_and_repeat unbatch unique",
    ),
    "estimator": _of_estimator,
    "framework": _of_framework,
    "framework.python": {},
    "framework.python.framework": _of_framework,
    "framework.python.framework.checkpoint_utils": names_of(
        _CHECKPOINTS, "init_from_checkpoint list_variables load_checkpoint load_variable"
    ),
    "framework.python.ops": _of_framework,
    "hooks": names_of(_HOOKS, "ProfilerHook"),
    "layers": names_of("tf.nn", "safe_embedding_lookup_sparse"),
    "layers.python": {},
    "learn": _of_learn | {"learn_runner": "fastsup.experiment.learn_runner"},
    "learn.io": _of_inputs,
    "learn.monitors": _of_monitors,
    "learn.python": {},
    "learn.python.learn": _of_learn,
    "learn.python.learn.basic_session_run_hooks": _of_hooks,
    "learn.python.learn.estimators": _of_estimators,
    "learn.python.learn.estimators.constants": _problem_type,
    "learn.python.learn.estimators.estimator": _estimator,
    "learn.python.learn.estimators.metric_key": _metric_key,
    "learn.python.learn.estimators.model_fn": _of_model_fn,
    "learn.python.learn.estimators.prediction_key": _prediction_key,
    "learn.python.learn.estimators.run_config": _of_run_config,
    "learn.python.learn.evaluable": _evaluable,
    "learn.python.learn.experiment": _experiment,
    "learn.python.learn.export_strategy": _export_strategy,
    "learn.python.learn.graph_actions": _of_inference,
    "learn.python.learn.learn_io": _of_inputs,
    "learn.python.learn.learn_io.numpy_io": names_of("fastsup.estimator.inputs", "numpy_input_fn"),
    "learn.python.learn.learn_io.pandas_io": names_of("fastsup.estimator.inputs", "pandas_input_fn"),
    "learn.python.learn.learn_runner": _of_runner,
    "learn.python.learn.learn_runner_lib": _of_runner,
    "learn.python.learn.metric_spec": _metric_spec,
    "learn.python.learn.monitored_session": names_of(
        _MONITORED, "ChiefSessionCreator MonitoredSession Scaffold SessionCreator WorkerSessionCreator"
    ),
    "learn.python.learn.monitors": _of_monitors,
    "learn.python.learn.session_run_hook": names_of(
        _SESSION_RUN, "SessionRunArgs SessionRunContext SessionRunHook SessionRunValues"
    ),
    "learn.python.learn.trainable": _trainable,
    "learn.python.learn.utils": _make_export_strategy | _of_input_ops,
    "learn.python.learn.utils.gc": names_of(
        "fastsup.estimator.export.export_gc",
        "Path get_paths largest_export_versions mod_export_version negation one_of_every_n_export_versions union",
    ),
    "learn.python.learn.utils.input_fn_utils": _of_input_ops,
    "learn.python.learn.utils.saved_model_export_utils": _of_exports,
    "learn.utils": _make_export_strategy | _of_input_ops,
    "lookup": _of_lookup,
    "lookup.lookup_ops": _of_lookup,
    "losses": {},
    "losses.python": {},
    "metrics": {},
    "metrics.python": {},
    "metrics.python.ops": {},
    "predictor": _of_predictor,
    "predictor.contrib_estimator_predictor": names_of(_PREDICTOR, "ContribEstimatorPredictor"),
    "predictor.core_estimator_predictor": names_of(_PREDICTOR, "CoreEstimatorPredictor"),
    "predictor.predictor": names_of(_PREDICTOR, "Predictor"),
    "predictor.predictor_factories": _of_predictor,
    "predictor.saved_model_predictor": names_of(_PREDICTOR, "SavedModelPredictor"),
    "rnn": _of_core_cells,
    "slim.python": {},
    "summary": names_of(
        _SUMMARY,
        "SummaryWriter always_record_summaries audio create_file_writer create_summary_file_writer eval_dir generic "
        "histogram image import_event initialize never_record_summaries record_summaries_every_n_global_steps scalar "
        "summary_writer_initializer_op",
    )
    | {
        "all_summary_ops": f"{_SUMMARY}.all_v2_summary_ops",
        "flush": f"{_SUMMARY}.legacy_raw_flush",
        "graph": f"{_SUMMARY}.graph_v1",
        "should_record_summaries": f"{_SUMMARY}._legacy_contrib_should_record_summaries",
    },
    "tpu": _of_tpu,
    "tpu.python": {},
    "tpu.python.tpu": {},
    "tpu.python.tpu.tpu_config": names_of(_TPU, "InputPipelineConfig RunConfig TPUConfig"),
    "tpu.python.tpu.tpu_estimator": names_of(_TPU, "TPUEstimator TPUEstimatorSpec"),
    "tpu.python.tpu.tpu_optimizer": names_of("tf.tpu", "CrossShardOptimizer"),
    "training": _of_training,
    "training.python": {},
    "training.python.training": _of_training,
    "training.python.training.device_setter": _of_placement,
    "training.python.training.evaluation": _of_evaluation,
    "training.python.training.feeding_queue_runner": _of_queue,
    "training.python.training.hparam": _of_hparams,
    "training.python.training.training": _of_train,
    "training.python.training.tuner": _of_tuner,
}

_OPS = ("tf_slim.ops.variables", "tf_slim.ops.arg_scope", "tf_slim.ops.framework_ops")

# The modules that are searched for a module's other names.
LIBRARIES: dict[str, tuple[str, ...]] = {
    "framework": _OPS,
    "framework.python.framework": _OPS,
    "framework.python.ops": _OPS,
    "layers": ("tf_slim.layers",),
    "losses": ("tf_slim.losses",),
    "metrics": ("tf_slim.metrics",),
    "metrics.python.ops": ("tf_slim.metrics",),
}

# Modules (with their submodules) that are now another library's. The longest matching name is used.
LIBRARY_MODULES = {
    "framework.python.ops.arg_scope": "tf_slim.ops.arg_scope",
    "framework.python.ops.variables": "tf_slim.ops.variables",
    "layers.python.layers": "tf_slim.layers",
    "losses.python.losses": "tf_slim.losses",
    "metrics.python.ops.metric_ops": "tf_slim.metrics.metric_ops",
    "slim": "tf_slim",
    "slim.python.slim": "tf_slim",
}


CONTRIB = "tensorflow.contrib"
_SLIM = "tf_slim"


def own_name(fullname: str) -> str | None:
    """Returns the name of a module without "tensorflow.contrib.", or None for a module that isn't created here."""
    name = fullname.removeprefix(CONTRIB).lstrip(".")
    return name if name in MODULES else None


def is_package(name: str) -> bool:
    """Returns True if a module has submodules. `name` is the result of `own_name`."""
    return bool(_modules_in(name))


def _modules_in(name: str) -> set[str]:
    prefix = f"{name}.".lstrip(".")
    others = (other for other in (*MODULES, *LIBRARY_MODULES) if other and other.startswith(prefix))
    return {other[len(prefix) :].partition(".")[0] for other in others}


def _has_slim() -> bool:
    return importlib.util.find_spec(_SLIM) is not None


def library_module(fullname: str) -> str | None:
    """Returns the other library's module that now replaces a module of `tensorflow.contrib`, or None."""
    name = fullname.removeprefix(f"{CONTRIB}.")
    for ours in sorted(LIBRARY_MODULES, key=len, reverse=True):
        if f"{name}.".startswith(f"{ours}.") and name not in MODULES:
            theirs = LIBRARY_MODULES[ours] + name[len(ours) :]
            try:
                return theirs if _has_slim() and importlib.util.find_spec(theirs) else None
            except ModuleNotFoundError:
                return None
    return None


def missing_module(fullname: str) -> ModuleNotFoundError:
    """Returns the error for a module of `tensorflow.contrib` that doesn't exist."""
    return absent_module_error(fullname, _why_absent(fullname.removeprefix(f"{CONTRIB}.")))


def _why_absent(name: str) -> str:
    """Returns a sentence about an absent name, given without "tf.contrib."."""
    why = alternative_to(name, ALTERNATIVES)
    if why is None and any(f"{name}.".startswith(f"{module}.") for module in (*LIBRARY_MODULES, *LIBRARIES)):
        why = f"it is in the package {_SLIM}: pip install {_SLIM}."
        if _has_slim():
            why = f"neither fastsup nor the package {_SLIM} has it."
    return f"{why or 'tf.contrib ended with TensorFlow 1, and fastsup has only its training parts.'} {GUIDE}"


def make_module(fullname: str) -> LazyModule:
    """Creates a module of `tensorflow.contrib`, given its full name."""
    name = own_name(fullname)
    assert name is not None
    names = (
        MODULES[name]
        if _has_slim()
        else {short: path for short, path in MODULES[name].items() if not path.startswith(f"{_SLIM}.")}
    )
    prefix = f"{name}.".lstrip(".")

    def find(short: str) -> Any:
        path = f"{CONTRIB}.{prefix}{short}"
        if own_name(path) is not None or library_module(path) is not None:
            return importlib.import_module(path)
        libraries = LIBRARIES.get(name, ()) if _has_slim() and not short.startswith("_") else ()
        modules = (importlib.import_module(library) for library in libraries)
        return next((getattr(module, short) for module in modules if hasattr(module, short)), None)

    shown = f"tf.contrib.{name}".rstrip(".")
    return LazyModule(fullname, shown, names, find, lambda short: _why_absent(prefix + short), _modules_in(name))
