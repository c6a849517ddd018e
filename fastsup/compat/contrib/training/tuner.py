"""Tuner: how `learn_runner.tune` asks for trials."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

__all__ = ["Tuner"]


class Tuner(abc.ABC):
    """A source of trials for `learn_runner.tune`. Subclasses define both methods."""

    @abc.abstractmethod
    def next_trial(self) -> bool:
        """Goes to the next trial.

        Returns:
          False if there is none.
        """
        raise NotImplementedError("Calling an abstract method.")

    @abc.abstractmethod
    def run_experiment(self, experiment_fn: Callable[..., Any]) -> None:
        """Runs the trial.

        Args:
          experiment_fn: function of `run_config` and `hparams` that returns the `Experiment`.
        """
        raise NotImplementedError("Calling an abstract method.")
