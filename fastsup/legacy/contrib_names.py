"""The modules of `tf.contrib` that programs import from, and what each of their names is now.

A module's name is written without "tensorflow.contrib.". What a name is, is the path of an object; "tf." at its
beginning stands for `tf.compat.v1`.
"""

from __future__ import annotations

__all__ = ["LIBRARIES", "LIBRARY_MODULES", "MODULES"]


def _of(place: str, names: str) -> dict[str, str]:
    """The paths of names in one module."""
    return {name: f"{place}.{name}" for name in names.split()}


_LEARN = "fastsup.contrib.learn"
_TRAINING = "fastsup.contrib.training"
_HOOKS = "tensorflow.python.training.basic_session_run_hooks"
_MONITORED = "tensorflow.python.training.monitored_session"
_SESSION_RUN = "tensorflow.python.training.session_run_hook"
_SUMMARY = "tensorflow.python.ops.summary_ops_v2"
_LOOKUP = "tensorflow.python.ops.lookup_ops"
_PREDICTOR = "fastsup.contrib.predictor"
_SMART = "tensorflow.python.framework.smart_cond"
_CHECKPOINTS = "tensorflow.python.training.checkpoint_utils"

_of_hooks = _of(
    _HOOKS,
    "LoggingTensorHook StopAtStepHook CheckpointSaverHook StepCounterHook NanLossDuringTrainingError NanTensorHook "
    "SummarySaverHook",
)
_of_monitors = _of(
    f"{_LEARN}.monitors",
    "BaseMonitor CaptureVariable CheckpointSaver EveryN ExportMonitor GraphDump LoggingTrainable NanLoss "
    "NanLossDuringTrainingError PrintTensor RunHookAdapterForMonitors StepCounter StopAtStep SummarySaver "
    "ValidationMonitor get_default_monitors replace_monitors_with_hooks",
)
_of_input_ops = _of(
    f"{_LEARN}.input_fn_ops", "InputFnOps build_default_serving_input_fn build_parsing_serving_input_fn"
)
_of_exports = _of(
    f"{_LEARN}.export_strategies",
    "BestModelSelector extend_export_strategy garbage_collect_exports get_most_recent_export "
    "make_best_model_export_strategy make_export_strategy make_parsing_export_strategy",
) | _of("tensorflow.python.saved_model.model_utils.export_utils", "get_temp_export_dir get_timestamped_export_dir")
_of_estimators = _of(
    _LEARN,
    "ClusterConfig Estimator MetricKey ModeKeys ModelFnOps NotFittedError PredictionKey ProblemType RunConfig TaskType",
) | _of(f"{_LEARN}.keys", "Environment")
_of_inputs = _of("fastsup.estimator.inputs", "numpy_input_fn pandas_input_fn")
_of_inference = _of(f"{_LEARN}.inference", "infer run_feeds run_feeds_iter run_n")
_of_runner = _of("fastsup.experiment.learn_runner", "run tune")
_of_learn = _of_estimators | _of(
    _LEARN,
    "Evaluable MetricSpec Experiment ExportStrategy InputFnOps NanLossDuringTrainingError Trainable "
    "build_parsing_serving_input_fn infer make_export_strategy run_feeds run_n",
)
_of_evaluation = _of(
    _TRAINING,
    "StopAfterNEvalsHook SummaryAtEndHook checkpoints_iterator evaluate_once evaluate_repeatedly "
    "get_or_create_eval_step wait_for_new_checkpoint",
)
_of_train = _of(
    _TRAINING,
    "add_gradients_summaries clip_gradient_norms clip_gradient_norms_fn create_train_op multiply_gradients train",
)
_of_hparams = _of(_TRAINING, "HParams parse_values")
_of_placement = _of(_TRAINING, "GreedyLoadBalancingStrategy RandomStrategy byte_size_load_fn")
_of_training = _of_evaluation | _of_train | _of_hparams | _of_placement | _of(_TRAINING, "FeedingQueueRunner Tuner")
_of_tpu = _of("fastsup.legacy.tpu", "InputPipelineConfig RunConfig TPUConfig TPUEstimator TPUEstimatorSpec") | _of(
    "tf.tpu",
    "CrossShardOptimizer batch_parallel bfloat16_scope core cross_replica_sum initialize_system outside_compilation "
    "replicate rewrite shard shutdown_system",
)
_of_estimator = _of(
    "fastsup.estimator.experimental",
    "InMemoryEvaluatorHook make_early_stopping_hook make_stop_at_checkpoint_step_hook stop_if_higher_hook "
    "stop_if_lower_hook stop_if_no_decrease_hook stop_if_no_increase_hook",
) | _of("fastsup.estimator", "add_metrics read_eval_metrics")  # fmt: skip
_of_framework = (
    _of(_SMART, "smart_case smart_cond smart_constant_value")
    | _of(_CHECKPOINTS, "init_from_checkpoint list_variables load_checkpoint load_variable")
    | _of(
        "tensorflow.python.training.training_util",
        "create_global_step get_global_step get_or_create_global_step assert_global_step",
    )
    | _of("tf", "TensorSpec argsort is_tensor py_func sort is_non_decreasing is_strictly_increasing is_numeric_tensor")
    | _of("tf.nn", "zero_fraction")
    | _of("tensorflow.python.util.deprecation", "deprecated deprecated_arg_values deprecated_args")
    | {"arg_scope": "tf_slim.ops.arg_scope.arg_scope", "nest": "tensorflow.python.util.nest"}
)
_of_lookup = (
    _of(
        _LOOKUP,
        "FastHashSpec HasherSpec IdTableWithHashBuckets InitializableLookupTableBase KeyValueTensorInitializer "
        "LookupInterface MutableHashTable StrongHashSpec TextFileIdTableInitializer TextFileIndex "
        "TextFileInitializer TextFileStringTableInitializer index_table_from_file index_to_string_table_from_file",
    )
    | _of(
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
_of_predictor = _of(_PREDICTOR, "from_contrib_estimator from_estimator from_saved_model")
_of_core_cells = _of(
    # Those of `tf.compat.v1.nn.rnn_cell` need the package tf_keras. These are the same cells.
    "tensorflow.python.keras.layers.legacy_rnn.rnn_cell_impl",
    "BasicLSTMCell BasicRNNCell DeviceWrapper DropoutWrapper GRUCell LSTMCell LSTMStateTuple MultiRNNCell RNNCell "
    "ResidualWrapper",
) | _of("tf.nn", "static_bidirectional_rnn static_rnn static_state_saving_rnn")

MODULES: dict[str, dict[str, str]] = {
    "": {},
    "cluster_resolver": _of(
        "tf.distribute.cluster_resolver",
        "ClusterResolver GCEClusterResolver KubernetesClusterResolver SimpleClusterResolver SlurmClusterResolver "
        "TFConfigClusterResolver TPUClusterResolver UnionResolver",
    )
    | {"UnionClusterResolver": "tf.distribute.cluster_resolver.UnionResolver"},
    "data": _of(
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
    "framework.python.framework.checkpoint_utils": _of(
        _CHECKPOINTS, "init_from_checkpoint list_variables load_checkpoint load_variable"
    ),
    "framework.python.ops": _of_framework,
    "hooks": _of(_HOOKS, "ProfilerHook"),
    "layers": _of("tf.nn", "safe_embedding_lookup_sparse"),
    "layers.python": {},
    "learn": _of_learn | {"learn_runner": "fastsup.experiment.learn_runner"},
    "learn.io": _of_inputs,
    "learn.monitors": _of_monitors,
    "learn.python": {},
    "learn.python.learn": _of_learn,
    "learn.python.learn.basic_session_run_hooks": _of_hooks,
    "learn.python.learn.estimators": _of_estimators,
    "learn.python.learn.estimators.constants": _of(f"{_LEARN}.keys", "ProblemType"),
    "learn.python.learn.estimators.estimator": _of(_LEARN, "Estimator"),
    "learn.python.learn.estimators.metric_key": _of(f"{_LEARN}.keys", "MetricKey"),
    "learn.python.learn.estimators.model_fn": _of(f"{_LEARN}.keys", "ModeKeys") | _of(_LEARN, "ModelFnOps"),
    "learn.python.learn.estimators.prediction_key": _of(f"{_LEARN}.keys", "PredictionKey"),
    "learn.python.learn.estimators.run_config": _of(f"{_LEARN}.run_config", "ClusterConfig RunConfig")
    | _of(f"{_LEARN}.keys", "Environment TaskType"),
    "learn.python.learn.evaluable": _of(f"{_LEARN}.interfaces", "Evaluable"),
    "learn.python.learn.experiment": _of("fastsup.experiment", "Experiment"),
    "learn.python.learn.export_strategy": _of("fastsup.experiment", "ExportStrategy"),
    "learn.python.learn.graph_actions": _of_inference,
    "learn.python.learn.learn_io": _of_inputs,
    "learn.python.learn.learn_io.numpy_io": _of("fastsup.estimator.inputs", "numpy_input_fn"),
    "learn.python.learn.learn_io.pandas_io": _of("fastsup.estimator.inputs", "pandas_input_fn"),
    "learn.python.learn.learn_runner": _of_runner,
    "learn.python.learn.learn_runner_lib": _of_runner,
    "learn.python.learn.metric_spec": _of(_LEARN, "MetricSpec"),
    "learn.python.learn.monitored_session": _of(
        _MONITORED, "ChiefSessionCreator MonitoredSession Scaffold SessionCreator WorkerSessionCreator"
    ),
    "learn.python.learn.monitors": _of_monitors,
    "learn.python.learn.session_run_hook": _of(
        _SESSION_RUN, "SessionRunArgs SessionRunContext SessionRunHook SessionRunValues"
    ),
    "learn.python.learn.trainable": _of(f"{_LEARN}.interfaces", "Trainable"),
    "learn.python.learn.utils": _of(f"{_LEARN}.export_strategies", "make_export_strategy") | _of_input_ops,
    "learn.python.learn.utils.gc": _of(
        "fastsup.estimator.export.export_gc",
        "Path get_paths largest_export_versions mod_export_version negation one_of_every_n_export_versions union",
    ),
    "learn.python.learn.utils.input_fn_utils": _of_input_ops,
    "learn.python.learn.utils.saved_model_export_utils": _of_exports,
    "learn.utils": _of(f"{_LEARN}.export_strategies", "make_export_strategy") | _of_input_ops,
    "lookup": _of_lookup,
    "lookup.lookup_ops": _of_lookup,
    "losses": {},
    "losses.python": {},
    "metrics": {},
    "metrics.python": {},
    "metrics.python.ops": {},
    "predictor": _of_predictor,
    "predictor.contrib_estimator_predictor": _of(_PREDICTOR, "ContribEstimatorPredictor"),
    "predictor.core_estimator_predictor": _of(_PREDICTOR, "CoreEstimatorPredictor"),
    "predictor.predictor": _of(_PREDICTOR, "Predictor"),
    "predictor.predictor_factories": _of_predictor,
    "predictor.saved_model_predictor": _of(_PREDICTOR, "SavedModelPredictor"),
    "rnn": _of_core_cells,
    "slim.python": {},
    "summary": _of(
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
    "tpu.python.tpu.tpu_config": _of("fastsup.legacy.tpu", "InputPipelineConfig RunConfig TPUConfig"),
    "tpu.python.tpu.tpu_estimator": _of("fastsup.legacy.tpu", "TPUEstimator TPUEstimatorSpec"),
    "tpu.python.tpu.tpu_optimizer": _of("tf.tpu", "CrossShardOptimizer"),
    "training": _of_training,
    "training.python": {},
    "training.python.training": _of_training,
    "training.python.training.device_setter": _of_placement,
    "training.python.training.evaluation": _of_evaluation,
    "training.python.training.feeding_queue_runner": _of(_TRAINING, "FeedingQueueRunner"),
    "training.python.training.hparam": _of_hparams,
    "training.python.training.training": _of_train,
    "training.python.training.tuner": _of(_TRAINING, "Tuner"),
}

_OPS = ("tf_slim.ops.variables", "tf_slim.ops.arg_scope", "tf_slim.ops.framework_ops")

# Where the other names of a module are looked for.
LIBRARIES: dict[str, tuple[str, ...]] = {
    "framework": _OPS,
    "framework.python.framework": _OPS,
    "framework.python.ops": _OPS,
    "layers": ("tf_slim.layers",),
    "losses": ("tf_slim.losses",),
    "metrics": ("tf_slim.metrics",),
    "metrics.python.ops": ("tf_slim.metrics",),
}

# Modules that are another library's, with the modules in them. The longest of the names counts.
LIBRARY_MODULES = {
    "framework.python.ops.arg_scope": "tf_slim.ops.arg_scope",
    "framework.python.ops.variables": "tf_slim.ops.variables",
    "layers.python.layers": "tf_slim.layers",
    "losses.python.losses": "tf_slim.losses",
    "metrics.python.ops.metric_ops": "tf_slim.metrics.metric_ops",
    "slim": "tf_slim",
    "slim.python.slim": "tf_slim",
}
