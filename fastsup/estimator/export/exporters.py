"""Exporters, which export a model after each evaluation, after the last one, or when it is the best so far."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from tensorflow.python.framework import errors, ops
from tensorflow.python.lib.io import file_io
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.util import deprecation, function_utils

from fastsup.common.file_system import write_whole
from fastsup.core.checks import check_range
from fastsup.estimator.config.tensorflow_names import v1
from fastsup.estimator.export.export_folders import delete_export

__all__ = [
    "BestExporter",
    "Exporter",
    "FinalExporter",
    "LatestExporter",
    "SavedModelExporter",
    "collect_old_exports",
]


class Exporter:
    """Base of exporters."""

    @property
    def name(self) -> Any:
        """Name of the directory for the exports, under `export`. Must not be None or empty."""

    def export(
        self, estimator: Any, export_path: Any, checkpoint_path: Any, eval_result: Any, is_the_final_export: bool
    ) -> Any:
        """Exports a model.

        Args:
          estimator: the `Estimator`.
          export_path: directory for the export.
          checkpoint_path: path of the checkpoint to export.
          eval_result: metrics of this checkpoint, from `Estimator.evaluate`.
          is_the_final_export: Whether training has reached `TrainSpec.max_steps`.

        Returns:
          Path of the exported directory, or None if nothing was exported.
        """


class SavedModelExporter(Exporter):
    """Exports a SavedModel after each evaluation. The base of the exporters below.

    name: name of the exporter and of its directory under `export`.
      name: name of the exporter, and of its directory under `export`.
      serving_input_receiver_fn: function without arguments that returns a `ServingInputReceiver`.
      assets_extra: dictionary from paths under the export's `assets.extra` to the source files, or None.
      as_text: Whether to write the SavedModel as text.

    Raises:
      TypeError: If an argument has the wrong type.
    """

    def __init__(
        self, name: str, serving_input_receiver_fn: Callable[[], Any] | None, assets_extra: Any = None,
        as_text: bool = False,
    ) -> None:  # fmt: skip
        if serving_input_receiver_fn is not None and not callable(serving_input_receiver_fn):
            raise TypeError(
                f"`serving_input_receiver_fn` must be callable, given: {serving_input_receiver_fn!r}. "
                "Pass a function that returns a ServingInputReceiver."
            )
        if assets_extra and not isinstance(assets_extra, dict):
            raise TypeError(f"`assets_extra` must be a dictionary from destinations to files, given: {assets_extra!r}")
        self._name = name
        self._serving_input_receiver_fn = serving_input_receiver_fn
        self._assets_extra = assets_extra
        self._as_text = as_text

    @property
    def name(self) -> Any:
        """Name of the exporter and of its directory under `export`."""
        return self._name

    def export(
        self, estimator: Any, export_path: Any, checkpoint_path: Any, eval_result: Any, is_the_final_export: bool
    ) -> Any:
        """Exports the checkpoint. See `Exporter.export`."""
        return estimator.export_saved_model(
            export_path,
            self._serving_input_receiver_fn,
            assets_extra=self._assets_extra,
            as_text=self._as_text,
            checkpoint_path=checkpoint_path,
        )


class FinalExporter(SavedModelExporter):
    """Exports once, when training reaches `TrainSpec.max_steps`. Takes the arguments of `SavedModelExporter`."""

    def export(
        self, estimator: Any, export_path: Any, checkpoint_path: Any, eval_result: Any, is_the_final_export: bool
    ) -> Any:
        """Exports the checkpoint if it is the final one. See `Exporter.export`."""
        if not is_the_final_export:
            return None
        logging.info("Performing the final export in the end of training.")
        return super().export(estimator, export_path, checkpoint_path, eval_result, is_the_final_export)


def check_exports_to_keep(exports_to_keep: Any, message: str) -> None:
    """Rejects a number of exports that is neither a positive integer nor None."""
    if exports_to_keep is None:
        return
    no_number = f"`exports_to_keep` must be a number or None, got {exports_to_keep!r}"
    check_range(exports_to_keep, lambda value: value > 0, no_number, message)
    if not hasattr(exports_to_keep, "__index__"):
        raise TypeError(f"`exports_to_keep` must be an integer or None, got {exports_to_keep!r}")


def path_text(path: Any) -> str | None:
    """Returns a path as a string, or None for an object that isn't a path, such as a mock."""
    return os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else None


def list_exports(export_path: Any) -> list[str]:
    """Returns the names of the exports in a directory, oldest first. A name is a time in seconds, with ten digits."""
    directory = path_text(export_path)
    if directory is None or not file_io.is_directory(directory):
        return []
    names = (name.rstrip("/") for name in file_io.list_directory_v2(directory))
    return sorted((name for name in names if len(name) == 10 and name.isdigit()), key=int)


def collect_old_exports(export_path: Any, exports_to_keep: int | None) -> None:
    """Deletes all but the newest exports of a directory."""
    if exports_to_keep is None:
        return
    names = list_exports(export_path)
    for name in names[: max(0, len(names) - exports_to_keep)]:
        path = os.path.join(os.fsdecode(export_path), name)
        try:
            delete_export(path)
        except errors.NotFoundError as error:
            logging.warning("Can not delete %s recursively: %s", path, error)


class LatestExporter(SavedModelExporter):
    """Exports after each evaluation, and deletes the oldest exports.

    Args:
      name: name of the exporter, and of its directory under `export`.
      serving_input_receiver_fn: function without arguments that returns a `ServingInputReceiver`.
      assets_extra: dictionary from paths under the export's `assets.extra` to the source files, or None.
      as_text: Whether to write the SavedModel as text.
      exports_to_keep: number of exports to keep. If None, keeps all.

    Raises:
      ValueError: If exports_to_keep isn't positive.
      TypeError: If an argument has the wrong type.
    """

    def __init__(
        self, name: str, serving_input_receiver_fn: Callable[[], Any] | None, assets_extra: Any = None,
        as_text: bool = False, exports_to_keep: int | None = 5,
    ) -> None:  # fmt: skip
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text)
        self._exports_to_keep = exports_to_keep
        check_exports_to_keep(exports_to_keep, "`exports_to_keep`, if provided, must be positive number")

    def export(
        self, estimator: Any, export_path: Any, checkpoint_path: Any, eval_result: Any, is_the_final_export: bool
    ) -> Any:
        """Exports the checkpoint, and deletes the oldest exports. See `Exporter.export`."""
        exported = super().export(estimator, export_path, checkpoint_path, eval_result, is_the_final_export)
        collect_old_exports(export_path, self._exports_to_keep)
        return exported


_LOSS = "loss"


def _loss_smaller(best_eval_result: Any, current_eval_result: Any) -> bool:
    """Returns True if the current evaluation has a smaller loss than the best one."""
    for name, result in (("best_eval_result", best_eval_result), ("current_eval_result", current_eval_result)):
        if not result or _LOSS not in result:
            raise ValueError(f"{name} cannot be empty or no loss is found in it.")
    return bool(best_eval_result[_LOSS] > current_eval_result[_LOSS])


def _check_compare_fn(compare_fn: Any) -> None:
    if compare_fn is None:
        raise ValueError("`compare_fn` must not be None.")
    if not callable(compare_fn):
        raise TypeError(f"`compare_fn` must be callable, given: {compare_fn!r}")
    arguments = set(function_utils.fn_args(compare_fn))
    wanted = ("best_eval_result", "current_eval_result")
    for name in wanted:
        if name not in arguments:
            raise ValueError(f"compare_fn ({compare_fn}) must include {name} argument.")
    others = sorted(arguments.difference(wanted))
    if others:
        raise ValueError(f"compare_fn ({compare_fn}) has following not expected args: {others}")


def _plain(value: Any) -> Any:
    """Converts a metric's value for JSON. Returns None unless the value is a scalar or an array of numbers."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if isinstance(value, (bool, int, float, str)) else None


class BestExporter(SavedModelExporter):
    """Exports after an evaluation whose result is better than the last export's.

    The best result is stored in the model directory (`best_export.NAME.json`), so that a restarted program exports only
    better models. If that file is missing and there are exports, for example from TensorFlow's exporter, the best
    result is read from the event files.

    Args:
      name: name of the exporter and of its directory under `export`.
      serving_input_receiver_fn: function without arguments that returns a `ServingInputReceiver`.
      event_file_pattern: pattern of the event files to search for the best result, relative to the model directory. If
        None, searches no files.
      compare_fn: function of `best_eval_result` and `current_eval_result` that returns True if the latter is better.
        By default, the result with the smaller "loss" is better.
      assets_extra: dictionary from paths under the export's `assets.extra` to the source files, or None.
      as_text: Whether to write the SavedModel as text.
      exports_to_keep: number of exports to keep. If None, keeps all.

    Raises:
      ValueError: If compare_fn is None or has the wrong arguments, or exports_to_keep isn't positive.
      TypeError: If an argument has the wrong type.
    """

    def __init__(
        self,
        name: str = "best_exporter",
        serving_input_receiver_fn: Callable[[], Any] | None = None,
        event_file_pattern: str | None = "eval/*.tfevents.*",
        compare_fn: Callable[..., Any] = _loss_smaller,
        assets_extra: Any = None,
        as_text: bool = False,
        exports_to_keep: int | None = 5,
    ) -> None:
        _check_compare_fn(compare_fn)
        if event_file_pattern is not None and not isinstance(event_file_pattern, str):
            raise TypeError(f"`event_file_pattern` must be a string or None, given: {event_file_pattern!r}")
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text)
        self._compare_fn = compare_fn
        self._event_file_pattern = event_file_pattern
        self._model_dir: Any = None
        self._best_eval_result: Any = None
        self._exports_to_keep = exports_to_keep
        check_exports_to_keep(
            exports_to_keep, f"`exports_to_keep`, if provided, must be a positive number. Got {exports_to_keep}"
        )

    def export(
        self, estimator: Any, export_path: Any, checkpoint_path: Any, eval_result: Any, is_the_final_export: bool
    ) -> Any:
        """Exports the checkpoint if its evaluation is the best so far. See `Exporter.export`."""
        if self._model_dir != estimator.model_dir:
            self._model_dir = estimator.model_dir
            self._best_eval_result = self._load_best(export_path, eval_result)
        if self._best_eval_result is not None and not self._compare_fn(
            best_eval_result=self._best_eval_result, current_eval_result=eval_result
        ):
            return None
        logging.info("Performing best model export.")
        exported = super().export(estimator, export_path, checkpoint_path, eval_result, is_the_final_export)
        self._best_eval_result = eval_result
        self._save_best(checkpoint_path, exported)
        collect_old_exports(export_path, self._exports_to_keep)
        return exported

    def _state_path(self, model_dir: str) -> str:
        return os.path.join(model_dir, f"best_export.{re.sub(r'[^-.0-9A-Za-z_]', '_', self.name)}.json")

    def _save_best(self, checkpoint_path: Any, exported: Any) -> None:
        model_dir = path_text(self._model_dir)
        if model_dir is None or not isinstance(self._best_eval_result, Mapping):
            return
        best = {str(key): _plain(value) for key, value in self._best_eval_result.items()}
        state = {
            # Leave out images and other values that can't be compared.
            "best_eval_result": {key: value for key, value in best.items() if value is not None},
            "checkpoint_path": path_text(checkpoint_path),
            "export": path_text(exported),
        }
        file_io.recursive_create_dir_v2(model_dir)
        write_whole(self._state_path(model_dir), json.dumps(state, indent=1))

    def _load_best(self, export_path: Any, eval_result: Any) -> Any:
        model_dir = path_text(self._model_dir)
        if model_dir is None:
            return None
        path = self._state_path(model_dir)
        try:
            best = json.loads(file_io.read_file_to_string(path))["best_eval_result"]
            if isinstance(best, dict):
                logging.info("Loading best metric from %s. See `python -m fastsup docs dropin#estimator`.", path)
                return best
            logging.warning("%s contains no best metric.", path)
        except errors.NotFoundError:
            pass
        except (errors.OpError, ValueError, KeyError, TypeError) as error:
            logging.warning("%s can't be read (%s).", path, error)
        if not self._event_file_pattern or not list_exports(export_path):
            return None
        logging.info("Loading best metric from event files.")
        step = eval_result.get(ops.GraphKeys.GLOBAL_STEP) if isinstance(eval_result, Mapping) else None
        return self._best_in_events(os.path.join(model_dir, self._event_file_pattern), step)

    def _best_in_events(self, pattern: str, current_step: Any) -> Any:
        """Returns the best result in the event files, without the current step, which it will be compared with."""
        best = None
        for path in sorted(file_io.get_matching_files(pattern)):
            try:
                with deprecation.silence():
                    for event in v1.train.summary_iterator(path):
                        values = {v.tag: v.simple_value for v in event.summary.value if v.HasField("simple_value")}
                        if not values or (current_step is not None and event.step == current_step):
                            continue
                        if best is None or self._compare_fn(best_eval_result=best, current_eval_result=values):
                            best = values
            except errors.DataLossError as error:
                logging.warning("The event file %s is damaged; only the events before that are used (%s).", path, error)
        return best
