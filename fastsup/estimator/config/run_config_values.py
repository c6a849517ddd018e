"""The checks of the values of a RunConfig."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.util import function_utils

from fastsup.core.checks import check_range
from fastsup.core.probe import check_profiler
from fastsup.runtime.executor import check_executor

__all__ = ["check_values"]


def _is_device_fn(function: Any) -> bool:
    return callable(function) and set(function_utils.fn_args(function)) == {"op"}


def check_values(config: Any) -> None:
    """Refuses properties of the wrong type or out of their range. None is a property that isn't set.

    Args:
      config: the `RunConfig`.

    Raises:
      ValueError: a value is out of its range.
      TypeError: a value is of the wrong type.
    """
    rules: list[tuple[str, Callable[[Any], Any], str]] = [
        ("model_dir", bool, "model_dir should be non-empty"),
        ("save_summary_steps", lambda value: value >= 0, "save_summary_steps should be >= 0"),
        ("save_checkpoints_steps", lambda value: value >= 0, "save_checkpoints_steps should be >= 0"),
        ("save_checkpoints_secs", lambda value: value >= 0, "save_checkpoints_secs should be >= 0"),
        (
            "session_config",
            lambda value: isinstance(value, config_pb2.ConfigProto),
            "session_config must be instance of ConfigProto",
        ),
        ("keep_checkpoint_max", lambda value: value >= 0, "keep_checkpoint_max should be >= 0"),
        ("keep_checkpoint_max", lambda value: hasattr(value, "__index__"), "keep_checkpoint_max must be an integer"),
        ("keep_checkpoint_every_n_hours", lambda value: value > 0, "keep_checkpoint_every_n_hours should be > 0"),
        ("log_step_count_steps", lambda value: value > 0, "log_step_count_steps should be > 0"),
        ("tf_random_seed", lambda value: isinstance(value, int), "tf_random_seed must be integer."),
        (
            "experimental_max_worker_delay_secs",
            lambda value: isinstance(value, int),
            "experimental_max_worker_delay_secs must be an integer if set.",
        ),
        ("session_creation_timeout_secs", lambda value: value > 0, "session_creation_timeout_secs should be > 0"),
        ("device_fn", _is_device_fn, 'device_fn must be callable with exactly one argument "op".'),
        ("protocol", lambda value: value in ("grpc", "grpc+verbs"), "protocol should be grpc or grpc+verbs"),
        ("async_save", lambda value: isinstance(value, bool), "async_save must be True or False"),
        ("progress", lambda value: isinstance(value, bool), "progress must be True or False"),
        ("recovery_wait_secs", lambda value: 0 <= value < math.inf, "recovery_wait_secs should be >= 0, and finite"),
    ]
    for name, is_in_range, message in rules:
        value = getattr(config, name)
        if value is None and name != "recovery_wait_secs":
            continue
        check_range(
            value,
            is_in_range,
            f"{message}; got {value!r} of type {type(value).__name__}",
            f"{message} Got {value!r}." if message.endswith(".") else f"{message}; got {value!r}",
        )
    check_executor(config.executor)
    check_profiler(config.profiler)
