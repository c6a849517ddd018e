"""Exports of `tf.contrib.learn`: the input functions of an exported model, and export strategies for an Experiment.

A strategy exports each checkpoint, or the best one, and may have a second step after the export.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from tensorflow.python.checkpoint import checkpoint_management
from tensorflow.python.feature_column import feature_column_v2
from tensorflow.python.lib.io import file_io
from tensorflow.python.summary import summary_iterator

from fastsup.common.file_system import delete_tree
from fastsup.contrib.learn.model import MetricKey
from fastsup.estimator.export import (
    ServingInputReceiver,
    build_parsing_serving_input_receiver_fn,
    build_raw_serving_input_receiver_fn,
)
from fastsup.estimator.export.export_folders import publish_export, temporary_export
from fastsup.estimator.export.export_gc import Path
from fastsup.estimator.export.exporters import collect_old_exports, list_exports
from fastsup.estimator.model.estimator import EstimatorV1
from fastsup.experiment import ExportStrategy

__all__ = [
    "BestModelSelector",
    "InputFnOps",
    "as_receiver_fn",
    "build_default_serving_input_fn",
    "build_parsing_serving_input_fn",
    "extend_export_strategy",
    "garbage_collect_exports",
    "get_most_recent_export",
    "make_best_model_export_strategy",
    "make_export_strategy",
    "make_parsing_export_strategy",
]


class InputFnOps(NamedTuple):
    """The input of an exported model, for an older estimator.

    Args:
      features: dictionary from names to the model's input tensors.
      labels: the labels, or None.
      default_inputs: dictionary from names to the placeholders that a request feeds.
    """

    features: Any
    labels: Any
    default_inputs: Any


def _of_receiver(receiver_fn: Callable[[], Any]) -> Callable[[], InputFnOps]:
    def input_fn() -> InputFnOps:
        made = receiver_fn()
        return InputFnOps(made.features, None, made.receiver_tensors)

    return input_fn


def build_parsing_serving_input_fn(
    feature_spec: Any, default_batch_size: int | None = None
) -> Callable[[], InputFnOps]:
    """Creates a serving function for serialized `tf.Example`s. See `build_parsing_serving_input_receiver_fn`.

    Args:
      feature_spec: dictionary from names to `FixedLenFeature` or `VarLenFeature`.
      default_batch_size: number of examples per request. If None, accepts any number.

    Returns:
      Function without arguments that returns `InputFnOps`.
    """
    return _of_receiver(build_parsing_serving_input_receiver_fn(feature_spec, default_batch_size))


def build_default_serving_input_fn(features: Any, default_batch_size: int | None = None) -> Callable[[], InputFnOps]:
    """Creates a serving function for features as tensors. See `build_raw_serving_input_receiver_fn`.

    Args:
      features: dictionary from names to tensors. The placeholders get their types and shapes.
      default_batch_size: number of examples per request. If None, accepts any number.

    Returns:
      Function without arguments that returns `InputFnOps`.
    """
    return _of_receiver(build_raw_serving_input_receiver_fn(features, default_batch_size))


def garbage_collect_exports(export_dir_base: Any, exports_to_keep: int | None) -> None:
    """Deletes all but the newest exports in a directory. If `exports_to_keep` is None, keeps all."""
    collect_old_exports(export_dir_base, exports_to_keep)


def get_most_recent_export(export_dir_base: Any) -> Path | None:
    """Returns the path and version (a time in seconds) of the newest export in a directory, or None."""
    names = list_exports(export_dir_base)
    return Path(os.path.join(os.fsdecode(export_dir_base), names[-1]), int(names[-1])) if names else None


def as_receiver_fn(serving_input_fn: Callable[[], Any]) -> Callable[[], Any]:
    """Wraps a function that returns `InputFnOps` or a `ServingInputReceiver`, so that it returns the latter."""

    def receiver_fn() -> Any:
        made = serving_input_fn()
        return ServingInputReceiver(made.features, made.default_inputs) if isinstance(made, InputFnOps) else made

    return receiver_fn


def make_export_strategy(
    serving_input_fn: Callable[[], Any],
    default_output_alternative_key: str | None = None,
    assets_extra: Any = None,
    as_text: bool = False,
    exports_to_keep: int | None = 5,
    strip_default_attrs: bool | None = None,
) -> ExportStrategy:
    """Creates an export strategy that exports each given checkpoint as a SavedModel.

    The other arguments are the same as for `tf.estimator.Estimator.export_saved_model`.

    Args:
      serving_input_fn: function without arguments that returns a `ServingInputReceiver` or `InputFnOps`.
      default_output_alternative_key: name of the head to serve, for an older estimator. None for an `Estimator`.
      exports_to_keep: number of exports to keep. If None, keeps all.

    Returns:
      An `ExportStrategy` named "Servo".
    """

    def export_fn(
        estimator: Any, export_dir_base: Any, checkpoint_path: Any = None, strip_default_attrs: bool | None = False
    ) -> Any:
        arguments = {
            "assets_extra": assets_extra,
            "as_text": as_text,
            "checkpoint_path": checkpoint_path,
            "strip_default_attrs": bool(strip_default_attrs),
        }
        if isinstance(estimator, EstimatorV1):
            if default_output_alternative_key is not None:
                raise ValueError(
                    "default_output_alternative_key is not supported in core Estimator. Given: "
                    f"{default_output_alternative_key}"
                )
            # Version 2 of the class hides this method.
            export = getattr(estimator, "export_savedmodel", partial(EstimatorV1.export_savedmodel, estimator))
            exported = export(export_dir_base, as_receiver_fn(serving_input_fn), **arguments)
        else:
            exported = estimator.export_savedmodel(
                export_dir_base,
                serving_input_fn,
                default_output_alternative_key=default_output_alternative_key,
                **arguments,
            )
        garbage_collect_exports(export_dir_base, exports_to_keep)
        return exported

    return ExportStrategy("Servo", export_fn, strip_default_attrs)


def make_parsing_export_strategy(
    feature_columns: Any,
    default_output_alternative_key: str | None = None,
    assets_extra: Any = None,
    as_text: bool = False,
    exports_to_keep: int | None = 5,
    target_core: bool = False,
    strip_default_attrs: bool | None = None,
) -> ExportStrategy:
    """Creates an export strategy as `make_export_strategy` does, for requests with serialized `tf.Example`s.

    Args:
      feature_columns: feature columns from `tf.feature_column`, which determine how an example is parsed.
      target_core: True for an `Estimator`, False for an older estimator. The result works for both.

    Returns:
      An `ExportStrategy` named "Servo".
    """
    feature_spec = feature_column_v2.make_parse_example_spec_v2(list(feature_columns))
    build: Any = build_parsing_serving_input_receiver_fn if target_core else build_parsing_serving_input_fn
    return make_export_strategy(
        build(feature_spec), default_output_alternative_key, assets_extra, as_text, exports_to_keep, strip_default_attrs
    )


def _has_smaller_loss(best: Any, candidate: Any) -> bool:
    for name, metrics in (("curr_best_eval_result", best), ("cand_eval_result", candidate)):
        if not metrics or MetricKey.LOSS not in metrics:
            raise ValueError(f"{name} cannot be empty or no loss is found in it.")
    return bool(best[MetricKey.LOSS] > candidate[MetricKey.LOSS])


class BestModelSelector:
    """Determines whether a checkpoint is the best so far.

    Args:
      event_file_pattern: pattern for the event files of earlier evaluations, to resume after a restart; or None.
      compare_fn: function of the best metrics and other metrics that returns True if the other metrics are better. If
        None, the metrics with the smaller loss are better.
    """

    def __init__(
        self, event_file_pattern: str | None = None, compare_fn: Callable[[Any, Any], bool] | None = None
    ) -> None:
        self._compare_fn = compare_fn or _has_smaller_loss
        self._best_eval_result = self._best_of_events(event_file_pattern)

    def update(self, checkpoint_path: Any, eval_result: Any) -> tuple[Any, Any]:
        """Records the metrics of a checkpoint.

        Args:
          checkpoint_path: path of the checkpoint.
          eval_result: its metrics.

        Returns:
          The arguments if the checkpoint is the best so far. Otherwise "" and None.

        Raises:
          ValueError: If the path is empty, or the metrics are None.
        """
        if not checkpoint_path:
            raise ValueError("Checkpoint path is empty.")
        if eval_result is None:
            raise ValueError(f"{checkpoint_path} has empty evaluation results.")
        if self._best_eval_result is None or self._compare_fn(self._best_eval_result, eval_result):
            self._best_eval_result = eval_result
            return checkpoint_path, eval_result
        return "", None

    def _best_of_events(self, pattern: str | None) -> Any:
        best: Any = None
        for path in file_io.get_matching_files_v2(pattern) if pattern else []:
            for event in summary_iterator.summary_iterator(path):
                metrics = {
                    value.tag: value.simple_value
                    for value in event.summary.value
                    if event.HasField("summary") and value.HasField("simple_value")
                }
                if metrics and (best is None or self._compare_fn(best, metrics)):
                    best = metrics
        return best


def make_best_model_export_strategy(
    serving_input_fn: Callable[[], Any],
    exports_to_keep: int | None = 1,
    model_dir: Any = None,
    event_file_pattern: str | None = None,
    compare_fn: Callable[[Any, Any], bool] | None = None,
    default_output_alternative_key: str | None = None,
    strip_default_attrs: bool | None = None,
) -> ExportStrategy:
    """Creates an export strategy that exports a checkpoint if its metrics are the best so far.

    The other arguments are the same as for `make_export_strategy` and `BestModelSelector`.

    Args:
      model_dir: the model directory, to find earlier metrics after a restart. If None, a restart forgets them.
      event_file_pattern: pattern of the event files in `model_dir`, such as "eval_continuous/*.tfevents.*".

    Returns:
      An `ExportStrategy` named "best_model".
    """
    strategy = make_export_strategy(
        serving_input_fn,
        default_output_alternative_key=default_output_alternative_key,
        exports_to_keep=exports_to_keep,
        strip_default_attrs=strip_default_attrs,
    )
    pattern = os.path.join(model_dir, event_file_pattern) if model_dir and event_file_pattern else None
    selector = BestModelSelector(pattern, compare_fn)

    def export_fn(estimator: Any, export_dir_base: Any, checkpoint_path: Any, eval_result: Any = None) -> Any:
        path = checkpoint_path or checkpoint_management.latest_checkpoint(estimator.model_dir)
        best_path, best_result = selector.update(path, eval_result)
        if not best_path or best_result is None:
            return ""
        folder = os.path.join(export_dir_base, os.path.basename(best_path))
        return strategy.export(estimator, folder, best_path, best_result)

    return ExportStrategy("best_model", export_fn)


def _new_folder(export_dir_base: Any, kind: str, purpose: str) -> str:
    folder = os.path.join(export_dir_base, f"temp-{kind}-export-{int(time.time())}")
    if file_io.file_exists_v2(folder):
        raise RuntimeError(f"Failed to obtain {purpose} export directory: {folder} exists.")
    file_io.recursive_create_dir_v2(folder)
    return folder


def extend_export_strategy(
    base_export_strategy: ExportStrategy,
    post_export_fn: Callable[[Any, Any], Any],
    post_export_name: str | None = None,
) -> ExportStrategy:
    """Adds a second step to an export strategy, which creates another SavedModel from the exported one.

    Args:
      base_export_strategy: the strategy of the first step.
      post_export_fn: function of the SavedModel's path and a folder. It writes the other SavedModel to a folder inside
        this folder and returns its path.
      post_export_name: name of the strategy. If None, uses the first strategy's name.

    Returns:
      The `ExportStrategy`. Its export raises ValueError if `post_export_fn` returns a path outside its folder, and
      RuntimeError if the export already exists.
    """

    def export_fn(estimator: Any, export_dir_base: Any, checkpoint_path: Any = None) -> Any:
        first = _new_folder(export_dir_base, "base", "base")
        with temporary_export(first):
            exported = base_export_strategy.export(estimator, first, checkpoint_path)
            second = _new_folder(export_dir_base, "post", "temp")
            with temporary_export(second):
                made = os.fsdecode(post_export_fn(exported, second))
                if not made.startswith(os.fsdecode(second)):
                    raise ValueError(f"post_export_fn must return a sub-directory of {second}, got {made}.")
                final = os.path.join(os.fsdecode(export_dir_base), os.path.relpath(made, second))
                if file_io.file_exists_v2(final):
                    raise RuntimeError(f"Failed to obtain final export directory: {final} exists.")
                publish_export(made, final)
        delete_tree(first)
        delete_tree(second)
        return final

    return ExportStrategy(post_export_name or base_export_strategy.name, export_fn)
