"""BestExporter: exports a model that is better than all earlier ones, including those before a restart."""

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
from fastsup.estimator.config.tensorflow_names import v1
from fastsup.estimator.export.exporters import (
    SavedModelExporter,
    check_exports_to_keep,
    collect_old_exports,
    list_exports,
    path_text,
)

__all__ = ["BestExporter"]

_LOSS = "loss"


def _loss_smaller(best_eval_result: Any, current_eval_result: Any) -> bool:
    """True if the loss of the second evaluation is smaller than that of the first."""
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
    """The value of a metric for JSON: scalars and arrays of NumPy as Python's; None for a value of another type."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if isinstance(value, (bool, int, float, str)) else None


class BestExporter(SavedModelExporter):
    """Exports after an evaluation whose result is better than that of the last export.

    The best result is stored in the model directory (`best_export.NAME.json`), so that a restarted program exports only
    better models. If that file is missing and there are exports, as from TensorFlow's exporter, the event files have
    the best result.

    Args:
      name: name of the exporter, and of its directory under `export`.
      serving_input_receiver_fn: function without arguments that returns a `ServingInputReceiver`.
      event_file_pattern: pattern of the event files to search for the best result, relative to the model directory.
        None: no search.
      compare_fn: function of `best_eval_result` and `current_eval_result` that returns True if the latter is better.
        By default, the one with the smaller "loss" is better.
      assets_extra: dictionary from paths under the export's `assets.extra` to the files to copy there, or None.
      as_text: True to write the SavedModel as text.
      exports_to_keep: number of exports to keep. None: all.

    Raises:
      ValueError: compare_fn is None or has other arguments, or exports_to_keep isn't positive.
      TypeError: an argument is of the wrong type.
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
        """Exports the checkpoint if its evaluation is the best. See `Exporter.export`."""
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
            # Without images and other values that can't be compared.
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
            logging.warning("%s holds no best metric.", path)
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
        """The best result in the event files, except that of the current step, with which it will be compared."""
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
                logging.warning("The event file %s is damaged; what comes before is used (%s).", path, error)
        return best
