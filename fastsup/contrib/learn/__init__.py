"""`tf.contrib.learn`: Experiment with what programs used it with."""

from typing import Any

from fastsup.contrib.learn import monitors
from fastsup.contrib.learn.estimator import Estimator, NotFittedError
from fastsup.contrib.learn.export_strategies import make_export_strategy
from fastsup.contrib.learn.inference import infer, run_feeds, run_n
from fastsup.contrib.learn.input_fn_ops import InputFnOps, build_parsing_serving_input_fn
from fastsup.contrib.learn.interfaces import Evaluable, Trainable
from fastsup.contrib.learn.keys import MetricKey, ModeKeys, PredictionKey, ProblemType, TaskType
from fastsup.contrib.learn.metric_spec import MetricSpec
from fastsup.contrib.learn.model_fn_ops import ModelFnOps
from fastsup.contrib.learn.monitors import NanLossDuringTrainingError
from fastsup.contrib.learn.run_config import ClusterConfig, RunConfig
from fastsup.experiment import Experiment, ExportStrategy, learn_runner
from fastsup.experiment.absent_contrib_names import absent_contrib_error

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
    raise absent_contrib_error(__name__, name)


def __dir__() -> list[str]:
    return sorted(__all__)
