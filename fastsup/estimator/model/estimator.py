"""Estimator: a model that trains, evaluates, predicts and exports itself."""

from __future__ import annotations

from typing import Any

from fastsup.estimator.model.distributed_model import DistributedModel
from fastsup.estimator.model.export_model import SavedModelExport
from fastsup.estimator.model.predict_model import Prediction

__all__ = ["Estimator", "check_estimator"]

# What a subclass may override all the same.
_OVERRIDABLE = {"model_fn", "_create_and_assert_global_step", "_export_all_saved_models", "latest_checkpoint"}


class Estimator(DistributedModel, Prediction, SavedModelExport):
    """A model, given by a function, that trains, evaluates, predicts and exports itself.

    Everything is written to one directory: checkpoints, events, exports. Training goes on from the newest checkpoint
    there. Each call builds the model in a graph of its own.

    Subclasses add methods; they may not override these, but for `_create_and_assert_global_step`,
    `_export_all_saved_models`, `latest_checkpoint` and `model_fn`. One that overrides others, on its own
    responsibility, also overrides `_assert_members_are_not_overridden`.

    Args:
      model_fn: function that builds the model and returns an `EstimatorSpec`. It takes `features`, and any of `labels`,
        `mode`, `params` and `config`.
      model_dir: the directory. Defaults to that of `config`, or else to a temporary one.
      config: `RunConfig`. Defaults to `RunConfig()`.
      params: dictionary of hyperparameters for `model_fn` and the input functions.
      warm_start_from: path of a checkpoint, of a directory with checkpoints or of a SavedModel, or `WarmStartSettings`:
        what the variables of a new model start with.

    Raises:
      ValueError: `model_fn` has the wrong arguments, `config` is no RunConfig, the directories of `model_dir` and
        `config` differ, or a subclass overrides what it may not.
      TypeError: `model_fn` can't be called.
    """

    def _assert_members_are_not_overridden(self) -> None:
        """Refuses a subclass that overrides what an Estimator relies on."""
        members = {name for name in dir(Estimator) if not name.startswith("__")}
        own = set(self.__class__.__dict__) & members - _OVERRIDABLE
        overridden = [name for name in own if getattr(Estimator, name) != getattr(self.__class__, name)]
        if overridden:
            raise ValueError(
                "Subclasses of Estimator cannot override members of Estimator. "
                f"{self.__class__} does override {overridden}"
            )


def check_estimator(estimator: Any) -> None:
    """Refuses what is no Estimator.

    Raises:
      TypeError: `estimator` is none.
    """
    if not isinstance(estimator, Estimator):
        raise TypeError(f"`estimator` must have type `tf.estimator.Estimator`. Got: {type(estimator)}")
