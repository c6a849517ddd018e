"""Estimator and what trains and evaluates it: the names of `tf.estimator`, on a TensorFlow that no longer has them."""

import fastsup.runtime as _runtime  # isort: skip  # noqa: F401  (says what to install if there is no TensorFlow)

from fastsup.estimator.best_exporter import BestExporter
from fastsup.estimator.eval_listener import (
    ContinuousEvalListener,
    NewCheckpointListenerForEvaluate,
    StopAtSecsHook,
)
from fastsup.estimator.eval_result import EvalResult, EvalStatus
from fastsup.estimator.executor import TrainingExecutor
from fastsup.estimator.exporters import Exporter, FinalExporter, LatestExporter
from fastsup.estimator.specs import EvalSpec, TrainSpec
from fastsup.estimator.train_and_evaluate import train_and_evaluate

__all__ = [
    "BestExporter",
    "ContinuousEvalListener",
    "EvalResult",
    "EvalSpec",
    "EvalStatus",
    "Exporter",
    "FinalExporter",
    "LatestExporter",
    "NewCheckpointListenerForEvaluate",
    "StopAtSecsHook",
    "TrainSpec",
    "TrainingExecutor",
    "train_and_evaluate",
]
