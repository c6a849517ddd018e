"""Modules and names that TensorFlow and tf_keras moved, under their old names."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable, Container
from types import ModuleType
from typing import Any

__all__ = [
    "KERAS",
    "KERAS_2",
    "MOVED",
    "MOVED_NAMES",
    "PLACES",
    "MovedNames",
    "has_moved_names",
    "place_of",
]

_PYTHON = "tensorflow.python"
_LEGACY_LAYERS = "tf_keras.legacy_tf_layers"
_TPU = "tensorflow_estimator.python.estimator.tpu"
# TensorFlow's internal Keras, of which only a part is left. Keras 2 is in another package.
KERAS, KERAS_2 = f"{_PYTHON}.keras", "tf_keras.src"

# The old and new place of modules in tensorflow.python. An empty string stands for a package that no longer exists,
# whose modules are in other places.
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
# The modules in the table above with their full names, and modules that moved to other packages.
MOVED = {
    **{f"{_PYTHON}.{old}": place and f"{_PYTHON}.{place}" for old, place in _IN_TENSORFLOW.items()},
    f"{_PYTHON}.distribute.estimator_training": "fastsup.compat.ended_names",
    **{f"{_PYTHON}.tpu.{name}": f"{_TPU}.{name}" for name in ("tpu_config", "tpu_context", "tpu_estimator", "util")},
    **{
        f"{_PYTHON}.feature_column.{name}": f"{KERAS_2}.feature_column.{name}"
        for name in ("dense_features", "dense_features_v2")
    },
    # TensorFlow itself imports this module under its old name.
    _LEGACY_LAYERS: "",
    **{
        f"{_LEGACY_LAYERS}.{name}": f"{KERAS_2}.legacy_tf_layers.{name}"
        for name in ("base", "convolutional", "core", "normalization", "pooling", "variable_scope_shim")
    },
}


def _of_keras_2(fullname: str, is_there: Callable[[], bool], placed: Container[str]) -> str | None:
    """Returns the new place of a Keras module that TensorFlow no longer has."""
    if not fullname.startswith(f"{KERAS}."):
        return None
    # If the parent package was found at its new place, is_there() would find the module there as well, and Python would
    # execute the module a second time.
    if fullname.rpartition(".")[0] not in placed and is_there():
        return None
    place = KERAS_2 + fullname[len(KERAS) :]
    try:
        return place if importlib.util.find_spec(place) is not None else None
    except ModuleNotFoundError:
        return None


def place_of(fullname: str, is_there: Callable[[], bool], placed: Container[str]) -> str | None:
    """Returns the new place of a moved module, or "" for a package whose modules are in other places.

    Returns None for any other module, and if this version still has the module in its old place. `is_there` returns
    True if the module is found under its name. `placed` contains the names of modules that were found in other places
    before.
    """
    if fullname in MOVED:
        return None if is_there() else MOVED[fullname]
    return _of_keras_2(fullname, is_there, placed)


_OPTIONAL = " ".join(
    f"optional_{name} optional_{name}_eager_fallback" for name in ("from_value", "get_value", "has_value", "none")
)

# Maps the module that had the names to the modules that have them now. All are in tensorflow.python. The tables come
# from the sources of releases 1.15 to 2.15, and contain top-level names that TensorFlow 2.21 has in another module.
# "name=other" is a name that was renamed.
MOVED_NAMES: dict[str, dict[str, str]] = {
    "autograph": {
        "autograph.core.converter": "ConversionOptions Feature",
        "autograph.impl.api": "AutoGraphError converted_call do_not_convert to_code to_graph",
        "autograph.lang.directives": "set_element_type set_loop_options",
    },
    "data.experimental.ops.interleave_ops": {"data.ops.directed_interleave_op": "_DirectedInterleaveDataset"},
    "data.experimental.ops.grouping": {"data.ops.group_by_window_op": "_GroupByWindowDataset"},
    "data.experimental.ops.scan_ops": {"data.ops.scan_op": "_ScanDataset"},
    "data.experimental.ops.snapshot": {"data.ops.snapshot_op": "_SnapshotDataset"},
    "data.experimental.ops.unique": {"data.ops.unique_op": "_UniqueDataset"},
    "data.ops.dataset_ops": {
        "data.ops.batch_op": "ParallelBatchDataset=_ParallelBatchDataset",
        "data.ops.cache_op": "CacheDataset",
        "data.ops.concatenate_op": "ConcatenateDataset=_ConcatenateDataset",
        "data.ops.debug_mode": "DEBUG_MODE enable_debug_mode toggle_debug_mode",
        "data.ops.directed_interleave_op": "_DirectedInterleaveDataset",
        "data.ops.filter_op": "FilterDataset=_FilterDataset",
        "data.ops.flat_map_op": "FlatMapDataset=_FlatMapDataset",
        "data.ops.from_generator_op": "_GeneratorDataset",
        "data.ops.from_sparse_tensor_slices_op": "SparseTensorSliceDataset=_SparseTensorSliceDataset",
        "data.ops.from_tensor_slices_op": "TensorSliceDataset=_TensorSliceDataset",
        "data.ops.from_tensors_op": "TensorDataset=_TensorDataset",
        "data.ops.group_by_window_op": "_GroupByWindowDataset",
        "data.ops.interleave_op": "InterleaveDataset=_InterleaveDataset "
        "ParallelInterleaveDataset=_ParallelInterleaveDataset",
        "data.ops.map_op": "MapDataset=_MapDataset ParallelMapDataset=_ParallelMapDataset",
        "data.ops.options": "AutotuneAlgorithm Options",
        "data.ops.padded_batch_op": "PaddedBatchDataset=_PaddedBatchDataset _is_padded_shape_compatible_with "
        "_padded_shape_to_tensor _padding_value_to_tensor _padding_values_or_default",
        "data.ops.random_op": "RandomDataset=_RandomDataset",
        "data.ops.range_op": "RangeDataset=_RangeDataset",
        "data.ops.readers": "_get_type",
        "data.ops.scan_op": "_ScanDataset",
        "data.ops.shard_op": "ShardDataset=_ShardDataset",
        "data.ops.skip_op": "SkipDataset=_SkipDataset",
        "data.ops.snapshot_op": "_SnapshotDataset",
        "data.ops.structured_function": "_should_pack _should_unpack",
        "data.ops.take_op": "TakeDataset=_TakeDataset",
        "data.ops.take_while_op": "_TakeWhileDataset",
        "data.ops.unbatch_op": "_UnbatchDataset",
        "data.ops.unique_op": "_UniqueDataset",
        "data.ops.window_op": "WindowDataset=_WindowDataset",
        "data.ops.zip_op": "ZipDataset=_ZipDataset",
    },
    "distribute.distribute_lib": {"distribute.distribute_utils": "create_mirrored_variable get_loss_reduction"},
    "distribute.input_lib": {
        "distribute.input_util": "get_distributed_dataset get_distributed_datasets_from_function",
        "distribute.v1.input_lib": "DatasetIterator DistributedDatasetV1 DistributedDatasetsFromFunctionV1 "
        "DistributedIteratorV1 InputFunctionIterator",
        "types.distribute": "DistributedDatasetInterface DistributedIteratorInterface",
    },
    "distribute.mirrored_strategy": {
        "distribute.mirrored_run": "_MirroredReplicaThread _RequestedStop _call_for_each_replica _enter_graph"
    },
    "distribute.values": {
        "distribute.distribute_utils": "is_distributed_variable regroup select_replica update_regroup "
        "validate_colocate validate_colocate_distributed_variable value_container",
        "distribute.ps_values": "AggregatingVariable",
        "distribute.tpu_values": "TPUMirroredVariable TPUSyncOnReadVariable TPUVariableMixin",
    },
    "eager.backprop": {"eager.polymorphic_function.polymorphic_function": "function"},
    "eager.def_function": {
        "eager.polymorphic_function.eager_function_run": "RUN_FUNCTIONS_EAGERLY experimental_functions_run_eagerly "
        "experimental_run_functions_eagerly",
        "eager.polymorphic_function.polymorphic_function": "UnliftedInitializerVariable",
    },
    "eager.function": {
        "eager.graph_only_ops": "graph_placeholder",
        "eager.polymorphic_function.concrete_function": "ConcreteFunctionGarbageCollector",
        "eager.polymorphic_function.function_type_utils": "FunctionSpec is_same_structure",
        "eager.polymorphic_function.polymorphic_function": "Function class_method_to_instance_method defun=function",
        "framework.func_graph": "FuncGraph func_graph_from_py_func",
    },
    "eager.tape": {
        "eager.record": "VariableWatcher could_possibly_record record_operation record_operation_backprop_only "
        "record_operation_forwardprop_only should_record_backprop stop_recording"
    },
    "feature_column.feature_column_v2": {"feature_column.feature_column_v2_types": "FeatureColumn"},
    "framework.common_shapes": {"framework.tensor_shape": "unknown_shape"},
    "framework.func_graph": {
        "eager.graph_only_ops": "graph_placeholder",
        "eager.polymorphic_function.polymorphic_function": "function",
        "framework.auto_control_deps": "AutomaticControlDependencies",
    },
    "framework.graph_util": {"framework.convert_to_constants": "convert_variables_to_constants"},
    "framework.graph_util_impl": {"framework.convert_to_constants": "convert_variables_to_constants"},
    "framework.ops": {
        "framework.indexed_slices": "IndexedSlices IndexedSlicesValue convert_n_to_tensor_or_indexed_slices "
        "convert_to_tensor_or_indexed_slices internal_convert_n_to_tensor_or_indexed_slices "
        "internal_convert_to_tensor_or_indexed_slices",
        "framework.stack": "_default_session_stack default_session",
        "framework.tensor": "Tensor _TensorIterator disable_tensor_equality enable_tensor_equality "
        "_eval_using_default_session _override_helper",
        "framework.tensor_conversion": "convert_to_tensor_v1 convert_to_tensor_v1_with_dispatch convert_to_tensor_v2 "
        "convert_to_tensor_v2_with_dispatch",
        "framework.tensor_conversion_registry": "register_tensor_conversion_function",
        "ops.handle_data_util": "get_handle_data",
        "types.core": "_TensorLike=Tensor",
        "fastsup.compat.ended_names": "register_dense_tensor_like_type",
    },
    "framework.tensor_spec": {"framework.tensor": "sanitize_spec_name"},
    "framework.tensor_util": {"ops.shape_util": "maybe_set_static_shape shape_tensor"},
    "framework.type_spec": {
        "framework.type_spec_registry": "_NAME_TO_TYPE_SPEC _TYPE_SPEC_TO_NAME get_name lookup register"
    },
    "layers.layers": {"layers.base": "InputSpec"},
    "ops.array_ops": {
        "ops.array_ops_stack": "stack unstack",
        "ops.tensor_getitem_override": "_BaseSlice _SLICE_TYPE_ERROR _check_index _slice_helper",
    },
    "ops.bincount_ops": {
        "ops.ragged.ragged_bincount_ops": "validate_ragged_weights",
        "ops.sparse_ops": "sparse_bincount validate_sparse_weights",
    },
    "ops.control_flow_ops": {
        "ops.cond": "_UnpackIfSingleton cond cond_for_tf_v2",
        "ops.cond_v2": "cond_v2",
        "ops.control_flow_assert": "Assert",
        "ops.control_flow_case": "_case_create_default_action _case_helper _case_verify_and_canonicalize_args case "
        "case_v2",
        "ops.control_flow_switch_case": "execute_fn_for_device switch_case",
        "ops.while_loop": "while_loop while_loop_v2",
    },
    "ops.control_flow_v2_func_graphs": {"framework.func_graph": "FuncGraph"},
    "ops.custom_gradient": {"ops.handle_data_util": "copy_handle_data"},
    "ops.functional_ops": {"ops.gen_functional_ops": "partitioned_call"},
    "ops.gen_dataset_ops": {"ops.gen_optional_ops": _OPTIONAL},
    "ops.gen_experimental_dataset_ops": {"ops.gen_dataset_ops": "dataset_cardinality"},
    "ops.gen_lookup_ops": {"ops.gen_experimental_dataset_ops": "initialize_table_from_dataset"},
    "ops.gen_math_ops": {"ops.gen_special_math_ops": "bessel_i0e bessel_i1e"},
    "ops.gradients_util": {"eager.backprop_util": "IsTrainable", "framework.func_graph": "FuncGraph"},
    "ops.lookup_ops": {"data.experimental.ops.lookup_ops": "DatasetInitializer"},
    "ops.math_ops": {
        "framework.override_binary_operator": "_maybe_get_dtype maybe_promote_tensors",
        "framework.sparse_tensor": "_sparse_dense_truediv",
        "ops.bincount_ops": "bincount bincount_v1",
    },
    "ops.nn_grad": {"ops.nn_fused_batch_norm_grad": "_BatchNormGrad"},
    "ops.nn_impl": {
        "ops.nn_impl_distribute": "compute_average_loss scale_regularization_loss",
        "ops.special_math_ops": "_enclosing_tpu_context",
    },
    "ops.nn_ops": {"ops.special_math_ops": "_enclosing_tpu_context"},
    "ops.parallel_for": {
        "ops.parallel_for.control_flow_ops": "for_loop pfor",
        "ops.parallel_for.gradients": "batch_jacobian jacobian",
    },
    "ops.random_ops": {"ops.random_crop_ops": "random_crop stateless_random_crop"},
    "ops.rnn_cell_impl": {
        "keras.layers.legacy_rnn.rnn_cell_impl": "ASSERT_LIKE_RNNCELL_ERROR_REGEXP"
    },
    "ops.stateful_random_ops": {"ops.random_ops_util": "Algorithm"},
    "ops.stateless_random_ops": {"ops.random_ops_util": "Algorithm convert_alg_to_int"},
    "ops.variable_scope": {
        "ops.resource_variables_toggle": "_DEFAULT_USE_RESOURCE disable_resource_variables enable_resource_variables "
        "resource_variables_enabled",
        "ops.variable_v1": "default_variable_creator variable=VariableV1",
        "ops.variables": "default_variable_creator_v2",
    },
    "ops.variables": {
        "ops.ref_variable": "RefVariable",
        "ops.variable_v1": "VariableV1 default_variable_creator is_variable_initialized",
    },
    "saved_model.nested_structure_coder": {
        "framework.tensor": "_BoundedTensorSpecCodec _TensorSpecCodec",
        "framework.tensor_shape": "_TensorShapeCodec",
    },
    "saved_model.utils_impl": {
        "saved_model.path_helpers": "get_assets_dir get_debug_dir get_or_create_assets_dir get_or_create_debug_dir "
        "get_or_create_variables_dir get_saved_model_pb_path get_saved_model_pbtxt_path get_variables_dir "
        "get_variables_path"
    },
    "tpu.tpu": {
        "tpu.tpu_replication": "OutsideCompilationV2Context TPUReplicateContext outside_compilation "
        "_TPU_REPLICATE_ATTR _OUTSIDE_COMPILATION_ATTR _UNSUPPORTED_OPS is_tpu_strategy"
    },
    "tpu.tpu_embedding_v2": {"tpu.tpu_embedding_for_serving": "cpu_embedding_lookup"},
    "training.checkpoint_management": {
        "checkpoint.checkpoint_management": "CheckpointManager _GetCheckpointFilename _evaluate "
        "_prefix_to_checkpoint_path checkpoint_exists checkpoint_exists_internal generate_checkpoint_state_proto "
        "get_checkpoint_mtimes get_checkpoint_state latest_checkpoint meta_graph_filename remove_checkpoint "
        "update_checkpoint_state update_checkpoint_state_internal"
    },
    "training.training": {"training.quantize_training": "do_quantize_training_on_graphdef"},
    "keras.utils": {
        "keras.utils.generic_utils": "class_and_config_for_serialized_keras_object custom_object_scope "
        "CustomObjectScope deserialize_keras_object get_custom_objects serialize_keras_class_and_config "
        "serialize_keras_object",
        "keras.utils.np_utils": "normalize to_categorical",
    },
    "util.nest": {"util.nest": "is_sequence=is_nested is_sequence_or_composite=is_nested_or_composite",
        "util.nest_util": "_DotString _DOT _is_composite_tensor _is_mutable_mapping _is_type_spec"},
    "util.tf_export": {"fastsup.estimator.canned.our_modules": "estimator_export"},
}  # fmt: skip


_PREFIX = "tensorflow.python."


def _index() -> dict[str, dict[str, tuple[str, str]]]:
    """Returns a dictionary from each module to the new places of its names: pairs of a module and a name."""
    index: dict[str, dict[str, tuple[str, str]]] = {}
    for old, places in MOVED_NAMES.items():
        found = index.setdefault(_PREFIX + old, {})
        for place, names in places.items():
            module = place if place.startswith("fastsup.") else _PREFIX + place
            for entry in names.split():
                name, _, other = entry.partition("=")
                found[name] = (module, other or name)
    return index


# For each module, the new places of its names: pairs of a module and a name.
PLACES = _index()


def has_moved_names(name: str) -> bool:
    """Returns True if TensorFlow has moved names of a module to other modules."""
    return name in PLACES or f"{name}.".startswith(f"{KERAS}.")


def _attribute(module: str, name: str) -> Any:
    """Returns an attribute of a module, or None if this version of TensorFlow has no such module or attribute."""
    try:
        return getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError:
        return None


class MovedNames:
    """The names that were added to their former modules."""

    def __init__(self) -> None:
        self._patched: list[ModuleType] = []
        self._added: list[tuple[ModuleType, str]] = []

    def patch_all(self) -> None:
        """Makes imported modules find the names that they lack."""
        for name in [name for name in sys.modules if has_moved_names(name)]:
            self.patch(name)

    def patch(self, name: str) -> None:
        """Makes a module find the names that it lacks, unless it has another name or its own `__getattr__`."""
        module = sys.modules.get(name)
        if module is not None and module.__name__ == name and "__getattr__" not in vars(module):
            vars(module)["__getattr__"] = functools.partial(self._find, module)
            self._patched.append(module)

    def _find(self, module: ModuleType, name: str) -> Any:
        own = module.__name__
        found = None
        if not name.startswith("__"):
            if name in PLACES.get(own, {}):
                found = _attribute(*PLACES[own][name])
            elif f"{own}.".startswith(f"{KERAS}."):
                found = _attribute(KERAS_2 + own[len(KERAS) :], name)
        if found is None:
            raise AttributeError(f"module {own!r} has no attribute {name!r}", name=name, obj=module)
        vars(module)[name] = found
        self._added.append((module, name))
        return found

    def restore(self) -> None:
        """Removes the names."""
        for module in self._patched:
            vars(module).pop("__getattr__", None)
        for module, name in self._added:
            vars(module).pop(name, None)
        self._patched.clear()
        self._added.clear()
