"""Experiment, which trains and evaluates an Estimator like `tf.contrib.learn.Experiment`."""

from typing import Any

from fastsup import estimator as _estimator
from fastsup.common.absent_names import absent_name_error, alternative_to
from fastsup.estimator.canned.archive import ALTERNATIVES, V2
from fastsup.experiment import learn_runner
from fastsup.experiment.experiment import Experiment, ExportStrategy

__all__ = ["Experiment", "ExportStrategy", "learn_runner"]

_ELSEWHERE = tuple((name, f"use fastsup.estimator.{name}.") for name in (*_estimator.__all__, *V2))


def __getattr__(name: str) -> Any:
    raise absent_name_error(__name__, name, alternative_to(name, (*_ELSEWHERE, *ALTERNATIVES)))


def __dir__() -> list[str]:
    return sorted(__all__)
