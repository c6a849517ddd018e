"""Experiment: trains and evaluates an Estimator, as `tf.contrib.learn.Experiment` did."""

from typing import Any

from fastsup import estimator as _estimator
from fastsup.estimator.absent_names import absent_name_error
from fastsup.estimator.canned.names import V2
from fastsup.experiment import learn_runner
from fastsup.experiment.experiment import Experiment
from fastsup.experiment.export_strategy import ExportStrategy

__all__ = ["Experiment", "ExportStrategy", "learn_runner"]


def __getattr__(name: str) -> Any:
    raise absent_name_error(__name__, name, (f"fastsup.estimator.{known}" for known in (*_estimator.__all__, *V2)))


def __dir__() -> list[str]:
    return sorted(__all__)
