"""`tf.contrib.learn`: Experiment and the classes that programs used with it."""

from typing import Any

from tensorflow.python.training.basic_session_run_hooks import NanLossDuringTrainingError

from fastsup.cluster.tf_config import TaskType
from fastsup.common.absent_names import absent_name_error, alternative_to
from fastsup.contrib.alternatives import ALTERNATIVES
from fastsup.contrib.learn import monitors
from fastsup.contrib.learn.estimator import ClusterConfig, Estimator, Evaluable, NotFittedError, RunConfig, Trainable
from fastsup.contrib.learn.exports import InputFnOps, build_parsing_serving_input_fn, make_export_strategy
from fastsup.contrib.learn.inference import infer, run_feeds, run_n
from fastsup.contrib.learn.model import MetricKey, MetricSpec, ModeKeys, ModelFnOps, PredictionKey, ProblemType
from fastsup.experiment import Experiment, ExportStrategy, learn_runner

__all__ = [
    "ClusterConfig",
    "Estimator",
    "Evaluable",
    "Experiment",
    "ExportStrategy",
    "InputFnOps",
    "MetricKey",
    "MetricSpec",
    "ModeKeys",
    "ModelFnOps",
    "NanLossDuringTrainingError",
    "NotFittedError",
    "PredictionKey",
    "ProblemType",
    "RunConfig",
    "TaskType",
    "Trainable",
    "build_parsing_serving_input_fn",
    "infer",
    "learn_runner",
    "make_export_strategy",
    "monitors",
    "run_feeds",
    "run_n",
]


def __getattr__(name: str) -> Any:
    raise absent_name_error(__name__, name, alternative_to(f"learn.{name}", ALTERNATIVES))


def __dir__() -> list[str]:
    return sorted(__all__)
