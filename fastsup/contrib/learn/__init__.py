"""`tf.contrib.learn`: Experiment with what programs used it with."""

from typing import Any

from tensorflow.python.training.basic_session_run_hooks import NanLossDuringTrainingError

from fastsup.cluster.tf_config import TaskType
from fastsup.common.absent_names import absent_name_error, alternative_to
from fastsup.compat.contrib.absent_names import ALTERNATIVES
from fastsup.compat.contrib.learn.estimator import Estimator, NotFittedError
from fastsup.compat.contrib.learn.export_strategies import make_export_strategy
from fastsup.compat.contrib.learn.inference import infer, run_feeds, run_n
from fastsup.compat.contrib.learn.input_fn_ops import InputFnOps, build_parsing_serving_input_fn
from fastsup.compat.contrib.learn.interfaces import Evaluable, Trainable
from fastsup.compat.contrib.learn.keys import MetricKey, ModeKeys, PredictionKey, ProblemType
from fastsup.compat.contrib.learn.metric_spec import MetricSpec
from fastsup.compat.contrib.learn.model_fn_ops import ModelFnOps
from fastsup.compat.contrib.learn.run_config import ClusterConfig, RunConfig
from fastsup.contrib.learn import monitors
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
