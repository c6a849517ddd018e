"""Estimator: trains, evaluates, predicts with and exports a model that a function builds."""

from __future__ import annotations

from typing import Any

from fastsup.estimator.model.arguments import check_type
from fastsup.estimator.model.distributed_model import DistributedModel
from fastsup.estimator.model.export_model import SavedModelExport
from fastsup.estimator.model.predict_model import Prediction

__all__ = ["Estimator", "EstimatorV1", "check_estimator"]

# The members that a subclass may override.
_OVERRIDABLE = {"model_fn", "_create_and_assert_global_step", "_export_all_saved_models", "latest_checkpoint"}


class EstimatorV1(DistributedModel, Prediction, SavedModelExport):
    """Trains, evaluates, predicts with and exports a model that a function builds.

    The model directory has the checkpoints, events and exports. Training starts from the newest checkpoint there. Each
    method builds the model in a graph of its own.

    A subclass may override `_create_and_assert_global_step`, `_export_all_saved_models`, `latest_checkpoint` and
    `model_fn`, and no other member. A subclass that overrides other members, on its own responsibility, also overrides
    `_assert_members_are_not_overridden`.

    Args:
      model_fn: function that builds the model and returns an `EstimatorSpec`. Its arguments are `features` and any of
        `labels`, `mode`, `params` and `config`.
      model_dir: path of the model directory. Defaults to that of `config`, or else to a temporary one.
      config: `RunConfig`. Defaults to `RunConfig()`.
      params: dictionary of hyperparameters for `model_fn` and the input functions.
      warm_start_from: source of the initial values of a new model: path of a checkpoint, of a directory with
        checkpoints or of a SavedModel, or `WarmStartSettings`.

    Raises:
      ValueError: `model_fn` has the wrong arguments, `config` is no RunConfig, the directories of `model_dir` and
        `config` differ, or a subclass overrides another member.
      TypeError: `model_fn` can't be called.
    """

    def _assert_members_are_not_overridden(self) -> None:
        """Refuses a subclass that overrides other members than it may."""
        base = Estimator if isinstance(self, Estimator) else EstimatorV1
        members = {name for name in dir(base) if not name.startswith("__")}
        own = set(self.__class__.__dict__) & members - _OVERRIDABLE
        overridden = [name for name in own if getattr(base, name, None) != getattr(self.__class__, name, None)]
        if overridden:
            raise ValueError(
                "Subclasses of Estimator cannot override members of Estimator. "
                f"{self.__class__} does override {overridden}"
            )


class _OnlyInVersion1:
    """An attribute that version 2 of the interface doesn't have.

    Args:
      instead: name of the attribute to use.
    """

    def __init__(self, instead: str) -> None:
        self._instead = instead

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        raise AttributeError(
            f"{owner.__name__!r} object has no attribute {self._name!r}: use {self._instead}(), which takes the same "
            f"arguments, or tf.compat.v1.estimator.Estimator, which still has {self._name}()."
        )


class Estimator(EstimatorV1):
    __doc__ = EstimatorV1.__doc__

    export_savedmodel: _OnlyInVersion1 = _OnlyInVersion1("export_saved_model")


def check_estimator(estimator: Any) -> None:
    """Raises TypeError for a value that is no `Estimator`."""
    if not isinstance(estimator, EstimatorV1):
        check_type("estimator", estimator, Estimator)
