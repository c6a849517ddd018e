"""Exporters, which export a model after an evaluation. `best_exporter` has the one that keeps the best model."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tensorflow.python.framework import errors
from tensorflow.python.lib.io import file_io
from tensorflow.python.platform import tf_logging as logging

from fastsup.core.checks import check_range
from fastsup.estimator.export.temporary_exports import delete_export

__all__ = ["Exporter", "FinalExporter", "LatestExporter", "SavedModelExporter", "collect_old_exports"]


class Exporter:
    """Base of exporters."""

    @property
    def name(self) -> Any:
        """Name of the directory under `export` for the exports. Neither None nor empty."""

    def export(
        self, estimator: Any, export_path: Any, checkpoint_path: Any, eval_result: Any, is_the_final_export: bool
    ) -> Any:
        """Exports a model.

        Args:
          estimator: the `Estimator`.
          export_path: directory for the export.
          checkpoint_path: path of the checkpoint to export.
          eval_result: metrics of this checkpoint, from `Estimator.evaluate`.
          is_the_final_export: True once training has reached `TrainSpec.max_steps`, if there is one.

        Returns:
          Path of the exported directory, or None if nothing was exported.
        """


class SavedModelExporter(Exporter):
    """Exports a SavedModel after each evaluation. The base of the exporters below.

    Args:
      name: name of the exporter, and of its directory under `export`.
      serving_input_receiver_fn: function without arguments that returns a `ServingInputReceiver`.
      assets_extra: dictionary from paths under the export's `assets.extra` to the files to copy there, or None.
      as_text: True to write the SavedModel as text.

    Raises:
      TypeError: an argument is of the wrong type.
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
        """Name of the exporter, and of its directory under `export`."""
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
    """Exports once, when training has reached `TrainSpec.max_steps`. Arguments as for `SavedModelExporter`."""

    def export(
        self, estimator: Any, export_path: Any, checkpoint_path: Any, eval_result: Any, is_the_final_export: bool
    ) -> Any:
        """Exports the checkpoint if it is the final one. See `Exporter.export`."""
        if not is_the_final_export:
            return None
        logging.info("Performing the final export in the end of training.")
        return super().export(estimator, export_path, checkpoint_path, eval_result, is_the_final_export)


def check_exports_to_keep(exports_to_keep: Any, message: str) -> None:
    """Refuses a number of exports that is neither a positive integer nor None.

    Args:
      exports_to_keep: number of exports, or None for no limit.
      message: message for a number that isn't positive.

    Raises:
      ValueError: the number isn't positive.
      TypeError: the value isn't an integer.
    """
    if exports_to_keep is None:
        return
    no_number = f"`exports_to_keep` must be a number or None, got {exports_to_keep!r}"
    check_range(exports_to_keep, lambda value: value > 0, no_number, message)
    if not hasattr(exports_to_keep, "__index__"):
        raise TypeError(f"`exports_to_keep` must be an integer or None, got {exports_to_keep!r}")


def path_text(path: Any) -> str | None:
    """A path as a string; None for an object that isn't a path, such as a mock."""
    return os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else None


def list_exports(export_path: Any) -> list[str]:
    """The names of the exports in a directory, oldest first. A name is a time in seconds, with ten digits."""
    directory = path_text(export_path)
    if directory is None or not file_io.is_directory(directory):
        return []
    names = (name.rstrip("/") for name in file_io.list_directory_v2(directory))
    return sorted((name for name in names if len(name) == 10 and name.isdigit()), key=int)


def collect_old_exports(export_path: Any, exports_to_keep: int | None) -> None:
    """Deletes all but the newest exports of a directory.

    Args:
      export_path: the directory.
      exports_to_keep: number of exports to keep. None: all.
    """
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
      assets_extra: dictionary from paths under the export's `assets.extra` to the files to copy there, or None.
      as_text: True to write the SavedModel as text.
      exports_to_keep: number of exports to keep. None: all.

    Raises:
      ValueError: exports_to_keep isn't positive.
      TypeError: an argument is of the wrong type.
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
