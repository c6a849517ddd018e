"""Evaluable and Trainable: what an estimator of the older kind has, for an Experiment."""

from __future__ import annotations

import abc
from typing import Any

__all__ = ["Evaluable", "Trainable"]


class Evaluable(abc.ABC):
    """An object that an Experiment can evaluate. Subclasses define both members."""

    @property
    @abc.abstractmethod
    def model_dir(self) -> Any:
        """Directory of the checkpoints."""
        raise NotImplementedError

    @abc.abstractmethod
    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        input_fn: Any = None,
        feed_fn: Any = None,
        batch_size: int | None = None,
        steps: int | None = None,
        metrics: Any = None,
        name: str | None = None,
        checkpoint_path: Any = None,
        hooks: Any = None,
    ) -> Any:
        """Evaluates the model.

        Args:
          x: data, or None with `input_fn`.
          y: labels of `x`.
          input_fn: function that returns the evaluation data: features and labels.
          feed_fn: function that returns the dictionary to feed in a step, or None.
          batch_size: size of the batches of `x`.
          steps: number of batches. None: until the data ends.
          metrics: dictionary from names to metrics, or None for those of the model.
          name: name of the evaluation.
          checkpoint_path: path of the checkpoint. None: the newest one.
          hooks: hooks for the evaluation.

        Returns:
          Dictionary from names of metrics, and "global_step", to values.
        """
        raise NotImplementedError


class Trainable(abc.ABC):
    """An object that an Experiment can train. Subclasses define `fit`."""

    @abc.abstractmethod
    def fit(
        self,
        x: Any = None,
        y: Any = None,
        input_fn: Any = None,
        steps: int | None = None,
        batch_size: int | None = None,
        monitors: Any = None,
        max_steps: int | None = None,
    ) -> Any:
        """Trains the model.

        Args:
          x: data, or None with `input_fn`.
          y: labels of `x`.
          input_fn: function that returns the training data: features and labels.
          steps: number of steps. None: until the data ends.
          batch_size: size of the batches of `x`.
          monitors: monitors and hooks for training.
          max_steps: global step at which training ends, in place of `steps`.

        Returns:
          The object itself.
        """
        raise NotImplementedError
