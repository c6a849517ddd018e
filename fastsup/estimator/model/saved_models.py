"""The exporter of an Estimator: writes SavedModels."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from tensorflow.python.checkpoint import checkpoint as checkpoint_lib
from tensorflow.python.checkpoint import graph_view
from tensorflow.python.eager import context
from tensorflow.python.framework import errors, ops
from tensorflow.python.saved_model import model_utils
from tensorflow.python.util import deprecation

from fastsup.checkpoint.restore import CheckpointRestorer, explaining_other_model
from fastsup.estimator.config.tensorflow_names import our_options, v1
from fastsup.estimator.export.export_folders import (
    check_assets,
    copy_assets,
    new_export_folders,
    publish_export,
    temporary_export,
)
from fastsup.estimator.model import model_checkpoints
from fastsup.estimator.model.model_fn import ModeKeys
from fastsup.estimator.model.user_model import UserModel, graph_keras_names
from fastsup.runtime.session import Session

__all__ = [
    "Exporter",
]

# The order matters. The first mode adds the variables to the SavedModel, and the training graph has all of them.
_MODES = (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT)


def _saver_of(scaffold: Any) -> Any:
    if isinstance(scaffold.saver, checkpoint_lib.Checkpoint):
        objects = graph_view.ObjectGraphView(scaffold.saver).frozen_saveable_objects()
        return v1.train.Saver(var_list=objects, sharded=True)
    return scaffold.saver or v1.train.Saver(sharded=True)


def _local_init_op_of(scaffold: Any) -> Any:
    if scaffold.local_init_op is None:
        return v1.train.Scaffold.default_local_init_op()
    return scaffold.local_init_op


def _signatures(receiver: Any, spec: Any, mode: str) -> dict[str, Any]:
    """Returns the signatures of a model in a mode."""
    outputs = model_utils.export_outputs_for_mode(
        spec.mode, spec.export_outputs, spec.predictions, spec.loss, spec.eval_metric_ops
    )
    alternatives = getattr(receiver, "receiver_tensors_alternatives", None)
    with deprecation.silence():  # TensorFlow's own function calls a deprecated one.
        signatures: dict[str, Any] = model_utils.build_all_signature_defs(
            receiver.receiver_tensors, outputs, alternatives, serving_only=mode == ModeKeys.PREDICT
        )
    return signatures


def _restore(graph_saver: Any, session: Any, checkpoint_path: Any, mode: str) -> None:
    """Restores a checkpoint. Rejects a checkpoint that is damaged or lacks a variable."""

    def restore(path: str) -> None:
        with explaining_other_model(session.graph, graph_saver, path):
            graph_saver.restore(session, path)

    try:
        # This reports damage as such, and not as OutOfRangeError, which means the end of the input.
        CheckpointRestorer(restore, lambda: None).restore_checkpoint(checkpoint_path)
    except errors.NotFoundError as error:
        raise ValueError(
            "Could not load all requested variables from checkpoint. Please make sure your model_fn does not expect "
            "variables that were not saved in the checkpoint.\n\n"
            f"Encountered error with mode `{mode}` while restoring checkpoint from: `{checkpoint_path}`. "
            f"Full Traceback:\n\n{error}"
        ) from None


class Exporter:
    """Exports a `UserModel`."""

    def __init__(self, model: UserModel) -> None:
        self._model = model

    def export(
        self, export_dir_base: Any, input_receiver_fn_map: dict[str, Callable[[], Any]], assets_extra: Any = None,
        as_text: bool = False, checkpoint_path: Any = None, strip_default_attrs: bool = True,
    ) -> Any:  # fmt: skip
        """Writes a SavedModel. See `Estimator.experimental_export_all_saved_models`."""
        model, methods = self._model, self._model.methods
        if not isinstance(export_dir_base, str | bytes | os.PathLike):
            raise TypeError(f"export_dir_base must be the path of a directory, got {export_dir_base!r}.")
        if not isinstance(input_receiver_fn_map, Mapping):
            raise TypeError(
                "input_receiver_fn_map must be a dictionary from modes to functions that return an input receiver, "
                f"got {input_receiver_fn_map!r}."
            )
        with context.graph_mode():
            checkpoint_path = model_checkpoints.parse_checkpoint_path(checkpoint_path) or methods.latest_checkpoint()
            if not checkpoint_path:
                if not model.warm_start_settings:
                    raise ValueError(
                        f"Couldn't find trained model at {model.model_dir}. "
                        f"{model_checkpoints.describe_directory(model.model_dir)}"
                    )
                checkpoint_path = model_checkpoints.checkpoint_of(model.warm_start_settings)
            for mode, function in input_receiver_fn_map.items():
                if function is not None and not callable(function):
                    raise TypeError(
                        f"{type(function).__name__!r} object is not callable: the input receiver function of mode "
                        f"{mode!r} must be a function that returns a ServingInputReceiver, got {function!r}."
                    )
            modes = [mode for mode in _MODES if input_receiver_fn_map.get(mode)]
            if not modes:
                raise ValueError(
                    f"No valid modes for exporting found. Got {input_receiver_fn_map.keys()}. Pass a function that "
                    f"returns an input receiver for one of {', '.join(map(repr, _MODES))}."
                )
            check_assets(assets_extra)
            export_dir, temporary_dir = new_export_folders(export_dir_base)
            with temporary_export(temporary_dir):
                builder = v1.saved_model.Builder(temporary_dir)
                for mode in modes:
                    methods._add_meta_graph_for_mode(
                        builder,
                        input_receiver_fn_map,
                        checkpoint_path,
                        save_variables=mode == modes[0],
                        mode=mode,
                        strip_default_attrs=strip_default_attrs,
                    )
                builder.save(as_text)
                copy_assets(assets_extra or {}, temporary_dir)
                publish_export(temporary_dir, export_dir)
            return export_dir

    def add_meta_graph(
        self, builder: Any, input_receiver_fn_map: dict[str, Callable[[], Any]], checkpoint_path: Any,
        save_variables: bool = True, mode: str = ModeKeys.PREDICT, export_tags: Any = None,
        check_variables: bool = True, strip_default_attrs: bool = True
    ) -> None:  # fmt: skip
        """Builds the model in a mode, restores the checkpoint, and adds the graph to a SavedModel.

        Args:
          builder: the `SavedModelBuilder`.
          input_receiver_fn_map, checkpoint_path, strip_default_attrs: as for `export`.
          save_variables: Whether to also add the variables. Only for the first mode.
          mode: one of `ModeKeys`.
          export_tags: tags of the graph. Defaults to the mode's tags.
          check_variables: Whether to restore the checkpoint, which must then have all variables.
        """
        if save_variables and not check_variables:
            raise ValueError("If `save_variables` is `True, `check_variables`must not be `False`.")
        model = self._model
        with ops.Graph().as_default() as graph:
            receiver, spec = self._build(graph, mode, input_receiver_fn_map[mode])
            signatures = _signatures(receiver, spec, mode)
            new_session = v1.Session
            with new_session(
                config=model.session_config, **our_options(new_session, Session, executor=model.config.executor)
            ) as session:
                contents: dict[str, Any] = {
                    "tags": model_utils.EXPORT_TAG_MAP[mode] if export_tags is None else export_tags,
                    "signature_def_map": signatures,
                    "assets_collection": ops.get_collection(ops.GraphKeys.ASSET_FILEPATHS),
                    "main_op": _local_init_op_of(spec.scaffold),
                    # This saver restores the checkpoint here, and the SavedModel's variables wherever it is loaded.
                    "saver": _saver_of(spec.scaffold),
                    "strip_default_attrs": strip_default_attrs,
                }
                if check_variables:
                    _restore(contents["saver"], session, checkpoint_path, mode)
                builder._add_train_op(spec.train_op)
                if save_variables:
                    builder.add_meta_graph_and_variables(session, **contents)
                else:
                    builder.add_meta_graph(**contents)

    def _build(self, graph: Any, mode: str, input_receiver_fn: Callable[[], Any]) -> tuple[Any, Any]:
        """Builds the model in the default graph. Returns the input receiver and the EstimatorSpec."""
        model, methods = self._model, self._model.methods
        methods._create_and_assert_global_step(graph)
        v1.random.set_random_seed(model.config.tf_random_seed)
        with graph_keras_names(graph):
            receiver = input_receiver_fn()
        if not (hasattr(receiver, "features") and hasattr(receiver, "receiver_tensors")):
            raise AttributeError(
                f"{type(receiver).__name__!r} object has no attribute 'features': the input receiver function of "
                f"mode {mode!r} must return a ServingInputReceiver, and returned {receiver!r}."
            )
        labels = getattr(receiver, "labels", None)
        spec = methods._call_model_fn(features=receiver.features, labels=labels, mode=mode, config=methods.config)
        return receiver, spec
