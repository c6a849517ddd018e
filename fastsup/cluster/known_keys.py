"""Which keys TF_CONFIG has, and a warning for those that it hasn't."""

from __future__ import annotations

from typing import Any

from tensorflow.python.platform import tf_logging as logging

__all__ = ["warn_of_unknown_keys"]

# What RunConfig and TensorFlow's cluster resolver read, and what the platforms that start the tasks write beside it.
_KEYS = (
    "cluster", "environment", "eval_session_master", "job", "master", "model_dir", "rpc_layer", "service",
    "session_master", "task",
)  # fmt: skip
_TASK_KEYS = ("cloud", "index", "trial", "type")


def warn_of_unknown_keys(tf_config: dict[str, Any]) -> None:
    """Says which keys nobody reads: with a misspelt "cluster" a task would train by itself in silence.

    Args:
      tf_config: TF_CONFIG as a dictionary.
    """
    task = tf_config.get("task")
    _warn("TF_CONFIG", tf_config, _KEYS)
    _warn('TF_CONFIG["task"]', task if isinstance(task, dict) else {}, _TASK_KEYS)


def _warn(where: str, found: dict[str, Any], known: tuple[str, ...]) -> None:
    unknown = [key for key in found if key not in known]
    if unknown:
        logging.warning("%s has keys that nobody reads: %s. The known ones are %s.", where, unknown, list(known))
