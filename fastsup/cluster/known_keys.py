"""Warns about keys of TF_CONFIG that have no effect."""

from __future__ import annotations

from typing import Any

from tensorflow.python.platform import tf_logging as logging

__all__ = ["warn_about_unknown_keys"]

# The keys that RunConfig and TensorFlow's cluster resolver read, and those that platforms add when they start a task.
_KEYS = (
    "cluster", "environment", "eval_session_master", "job", "master", "model_dir", "rpc_layer", "service",
    "session_master", "task",
)  # fmt: skip
_TASK_KEYS = ("cloud", "index", "trial", "type")


def warn_about_unknown_keys(tf_config: dict[str, Any]) -> None:
    """Logs a warning with the unknown keys. With a misspelt "cluster" a task would silently train alone.

    Args:
      tf_config: TF_CONFIG as a dictionary.
    """
    task = tf_config.get("task")
    _warn("TF_CONFIG", tf_config, _KEYS)
    _warn('TF_CONFIG["task"]', task if isinstance(task, dict) else {}, _TASK_KEYS)


def _warn(path: str, section: dict[str, Any], known_keys: tuple[str, ...]) -> None:
    unknown = [key for key in section if key not in known_keys]
    if unknown:
        logging.warning(
            "%s has unknown keys: %s. The known ones are %s. See `python -m fastsup docs dropin#clusters`.",
            path,
            unknown,
            list(known_keys),
        )
