"""The trainers of an Estimator: without a strategy, with one, and for a task of a job of collectives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorflow.python.framework import ops
from tensorflow.python.training import training_util

from fastsup.estimator.collective.collective_training import CollectiveTraining, collective_training
from fastsup.estimator.config import distribution
from fastsup.estimator.config.tensorflow_names import v1
from fastsup.estimator.model import trained_model
from fastsup.estimator.model.model_fn import ModeKeys
from fastsup.estimator.model.user_model import UserModel

__all__ = ["CollectiveTrainer", "LocalTrainer", "StrategyTrainer", "choose_trainer"]


class LocalTrainer:
    """Trains a `UserModel` without a strategy."""

    part = None

    def __init__(self, model: UserModel) -> None:
        self._model = model

    def train(self, input_fn: Callable[..., Any], hooks: list[Any], saving_listeners: list[Any]) -> Any:
        """Builds the model and trains it.

        Args:
          input_fn: function that makes the input.
          hooks: hooks of the caller.
          saving_listeners: listeners of the caller.

        Returns:
          The loss of the last step; None without a step.
        """
        model, methods = self._model, self._model.methods
        with ops.Graph().as_default() as graph, graph.device(model.device_fn):
            # None in a subclass whose model_fn makes the global step.
            if model.seed_and_create_global_step(graph) is not None:
                training_util._get_or_create_global_step_read(graph)
            features, labels, input_hooks = methods._get_features_and_labels_from_input_fn(input_fn, ModeKeys.TRAIN)
            spec = methods._call_model_fn(features, labels, ModeKeys.TRAIN, methods.config)
            global_step = v1.train.get_global_step(graph)
            return methods._train_with_estimator_spec(spec, list(input_hooks), hooks, global_step, saving_listeners)


class StrategyTrainer:
    """Trains a `UserModel` with a strategy, on the devices of this process."""

    part = None

    def __init__(self, model: UserModel) -> None:
        self._model = model

    def train(self, input_fn: Callable[..., Any], hooks: list[Any], saving_listeners: list[Any]) -> Any:
        """Builds the model and trains it. See `LocalTrainer.train`."""
        model, strategy = self._model, self._model.train_distribution
        distribution.check_devices("train_distribute", strategy, model.session_config)
        strategy.configure(model.session_config)
        return model.methods._actual_train_model_distributed(strategy, input_fn, hooks, saving_listeners)


class CollectiveTrainer:
    """Trains a `UserModel` in a task of a job of collectives.

    Attributes:
      part: this task's part in the job, while it trains. Other trainers have none.
    """

    def __init__(self, model: UserModel) -> None:
        self._model = model
        self.part: CollectiveTraining | None = None

    def train(self, input_fn: Callable[..., Any], hooks: list[Any], saving_listeners: list[Any]) -> Any:
        """Builds the model and trains it. See `LocalTrainer.train`."""
        model, strategy = self._model, self._model.train_distribution
        distribution.check_devices("train_distribute", strategy, model.session_config)
        checkpoint = trained_model.newest_checkpoint(model.model_dir)
        with collective_training(model.config, strategy, model.session_config, checkpoint) as self.part:
            try:
                return model.methods._actual_train_model_distributed(strategy, input_fn, hooks, saving_listeners)
            finally:
                self.part = None


def choose_trainer(model: UserModel) -> LocalTrainer | StrategyTrainer | CollectiveTrainer:
    """Returns the trainer for a model's strategy and task."""
    if not model.train_distribution:
        return LocalTrainer(model)
    return CollectiveTrainer(model) if distribution.trains_collectively(model.config) else StrategyTrainer(model)
