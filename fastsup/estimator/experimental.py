"""The names of `tf.estimator.experimental`, and the hook of `tf.data.experimental` that needs an Estimator."""

from typing import Any

from fastsup.common.absent_names import absent_name_error, alternative_to
from fastsup.estimator.canned.archive import ALTERNATIVES, EXPERIMENTAL, canned_object
from fastsup.estimator.export.receivers import build_raw_supervised_input_receiver_fn
from fastsup.estimator.hooks.in_memory_evaluator import InMemoryEvaluatorHook
from fastsup.estimator.hooks.input_pipeline_checkpoint import CheckpointInputPipelineHook
from fastsup.estimator.hooks.stopping import (
    make_early_stopping_hook,
    make_stop_at_checkpoint_step_hook,
    stop_if_higher_hook,
    stop_if_lower_hook,
    stop_if_no_decrease_hook,
    stop_if_no_increase_hook,
)
from fastsup.estimator.model.model_fn import call_logit_fn

__all__ = [
    "CheckpointInputPipelineHook",
    "InMemoryEvaluatorHook",
    "build_raw_supervised_input_receiver_fn",
    "call_logit_fn",
    "make_early_stopping_hook",
    "make_stop_at_checkpoint_step_hook",
    "stop_if_higher_hook",
    "stop_if_lower_hook",
    "stop_if_no_decrease_hook",
    "stop_if_no_increase_hook",
]


def __getattr__(name: str) -> Any:
    if name in EXPERIMENTAL:
        return canned_object(__name__, name, EXPERIMENTAL)
    raise absent_name_error(__name__, name, alternative_to(name, ALTERNATIVES))


def __dir__() -> list[str]:
    return sorted(__all__)
