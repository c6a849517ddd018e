"""`tf.contrib.training`: training and evaluation loops, and hyperparameters."""

from typing import Any

from tensorflow.python.training.checkpoint_utils import checkpoints_iterator, wait_for_new_checkpoint

from fastsup.common.absent_names import absent_name_error, alternative_to
from fastsup.compat.contrib.absent_names import ALTERNATIVES
from fastsup.compat.contrib.training.evaluation import evaluate_once, evaluate_repeatedly, get_or_create_eval_step
from fastsup.compat.contrib.training.hparams import HParams
from fastsup.compat.contrib.training.parameter_placement import (
    GreedyLoadBalancingStrategy,
    RandomStrategy,
    byte_size_load_fn,
)
from fastsup.compat.contrib.training.parse_values import parse_values
from fastsup.compat.contrib.training.summary_at_end import SummaryAtEndHook
from fastsup.compat.contrib.training.train import train
from fastsup.compat.contrib.training.train_op import (
    add_gradients_summaries,
    clip_gradient_norms,
    clip_gradient_norms_fn,
    create_train_op,
    multiply_gradients,
)
from fastsup.compat.contrib.training.tuner import Tuner
from fastsup.estimator.inputs.feeding_queue import FeedingQueueRunner
from fastsup.estimator.model.evaluate_once import StopAfterNEvalsHook

__all__ = [
    "FeedingQueueRunner",
    "GreedyLoadBalancingStrategy",
    "HParams",
    "RandomStrategy",
    "StopAfterNEvalsHook",
    "SummaryAtEndHook",
    "Tuner",
    "add_gradients_summaries",
    "byte_size_load_fn",
    "checkpoints_iterator",
    "clip_gradient_norms",
    "clip_gradient_norms_fn",
    "create_train_op",
    "evaluate_once",
    "evaluate_repeatedly",
    "get_or_create_eval_step",
    "multiply_gradients",
    "parse_values",
    "train",
    "wait_for_new_checkpoint",
]


def __getattr__(name: str) -> Any:
    raise absent_name_error(__name__, name, alternative_to(f"training.{name}", ALTERNATIVES))


def __dir__() -> list[str]:
    return sorted(__all__)
