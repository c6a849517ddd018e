"""Estimator: the names of `tf.estimator`, which TensorFlow removed in version 2.16.

A function builds the model. An `Estimator` trains, evaluates, exports and predicts with this model, in fastsup's
sessions. The session-run hooks are the hooks of `fastsup.train`. The extra `fastsup[canned]` adds the canned models
(`DNNClassifier`, ...) and the heads.
"""

from typing import Any

import fastsup.runtime as _runtime  # isort: skip  # noqa: F401  (says what to install if there is no TensorFlow)

from fastsup.common.absent_names import absent_name_error, alternative_to
from fastsup.estimator import experimental, export, inputs
from fastsup.estimator.canned.archive import ALTERNATIVES, EXPERIMENTAL, V2, canned_object
from fastsup.estimator.config.run_config import RunConfig, TaskType
from fastsup.estimator.export.exporters import BestExporter, Exporter, FinalExporter, LatestExporter
from fastsup.estimator.hooks.in_memory_evaluator import InMemoryEvaluatorHook
from fastsup.estimator.hooks.stopping import (
    StopAtSecsHook,
    make_early_stopping_hook,
    make_stop_at_checkpoint_step_hook,
    read_eval_metrics,
    stop_if_higher_hook,
    stop_if_lower_hook,
    stop_if_no_decrease_hook,
    stop_if_no_increase_hook,
)
from fastsup.estimator.jobs.eval_listener import (
    ContinuousEvalListener,
    EvalResult,
    EvalStatus,
    NewCheckpointListenerForEvaluate,
)
from fastsup.estimator.jobs.specs import EvalSpec, TrainSpec
from fastsup.estimator.jobs.train_and_evaluate import TrainingExecutor, train_and_evaluate
from fastsup.estimator.model.estimator import Estimator, add_metrics
from fastsup.estimator.model.model_checkpoints import VocabInfo, WarmStartSettings
from fastsup.estimator.model.model_fn import EstimatorSpec, ModeKeys, call_logit_fn
from fastsup.estimator.serving.predictor import Predictor
from fastsup.train import (
    CheckpointSaverHook,
    CheckpointSaverListener,
    FeedFnHook,
    FinalOpsHook,
    GlobalStepWaiterHook,
    LoggingTensorHook,
    NanLossDuringTrainingError,
    NanTensorHook,
    ProfilerHook,
    SecondOrStepTimer,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StepCounterHook,
    StopAtStepHook,
    SummarySaverHook,
)

__all__ = [
    "BestExporter",
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "ContinuousEvalListener",
    "Estimator",
    "EstimatorSpec",
    "EvalResult",
    "EvalSpec",
    "EvalStatus",
    "Exporter",
    "FeedFnHook",
    "FinalExporter",
    "FinalOpsHook",
    "GlobalStepWaiterHook",
    "InMemoryEvaluatorHook",
    "LatestExporter",
    "LoggingTensorHook",
    "ModeKeys",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "NewCheckpointListenerForEvaluate",
    "Predictor",
    "ProfilerHook",
    "RunConfig",
    "SecondOrStepTimer",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "StepCounterHook",
    "StopAtSecsHook",
    "StopAtStepHook",
    "SummarySaverHook",
    "TaskType",
    "TrainSpec",
    "TrainingExecutor",
    "VocabInfo",
    "WarmStartSettings",
    "add_metrics",
    "call_logit_fn",
    "experimental",
    "export",
    "inputs",
    "make_early_stopping_hook",
    "make_stop_at_checkpoint_step_hook",
    "read_eval_metrics",
    "stop_if_higher_hook",
    "stop_if_lower_hook",
    "stop_if_no_decrease_hook",
    "stop_if_no_increase_hook",
    "train_and_evaluate",
]

# Names of these modules that programs import from here.
_ELSEWHERE = tuple(
    (name, f"use {module.__name__}.{name}.")
    for module, names in ((experimental, (*experimental.__all__, *EXPERIMENTAL)), (export, export.__all__))
    for name in names
)


def __getattr__(name: str) -> Any:
    if name in V2:
        return canned_object(__name__, name, V2)
    raise absent_name_error(__name__, name, alternative_to(name, (*_ELSEWHERE, *ALTERNATIVES)))


def __dir__() -> list[str]:
    return sorted(__all__)
