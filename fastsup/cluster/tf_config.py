"""Reads the environment variable TF_CONFIG."""

from __future__ import annotations

import json
import os
from typing import Any

__all__ = ["ClusterConfigTypeError", "read_tf_config", "summarize_tf_config"]

TF_CONFIG = "TF_CONFIG"
_EXAMPLE = '{"cluster": {"chief": ["host0:2222"], "worker": ["host1:2222"]}, "task": {"type": "worker", "index": 0}}'


class ClusterConfigTypeError(ValueError, TypeError):
    """A part of TF_CONFIG is of the wrong type. Also a TypeError, which TensorFlow raises for some of these parts."""


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object as a dictionary. Python silently takes the last of equal keys, and tasks would be lost."""
    section = dict(pairs)
    if len(section) < len(pairs):
        keys = [key for key, _ in pairs]
        duplicate = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(
            f'The environment variable TF_CONFIG has the key "{duplicate}" more than once in one object: {keys}. Give '
            f"it once, with all of its tasks. TF_CONFIG is {os.environ.get(TF_CONFIG)!r}."
        )
    return section


def read_tf_config() -> dict[str, Any]:
    """Reads the environment variable TF_CONFIG.

    Returns:
      TF_CONFIG as a dictionary, which is empty if the variable isn't set.

    Raises:
      ValueError: TF_CONFIG isn't JSON, isn't a JSON object, or has a key twice.
    """
    text = os.environ.get(TF_CONFIG, "{}")
    try:
        config = json.loads(text, object_pairs_hook=_without_duplicates)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"The environment variable TF_CONFIG isn't JSON ({error}). It is {text!r}. "
            f"It should be a JSON object such as {_EXAMPLE}."
        ) from error
    if config is None:
        return {}
    if not isinstance(config, dict):
        raise ClusterConfigTypeError(
            f"The environment variable TF_CONFIG must be a JSON object, such as {_EXAMPLE}; got {text!r}."
        )
    return config


def summarize_tf_config(tf_config: dict[str, Any] | None = None) -> str:
    """The roles and the task of TF_CONFIG in one sentence, for an error message.

    Args:
      tf_config: TF_CONFIG as a dictionary. None: read from the environment.
    """
    if tf_config is None:
        tf_config = read_tf_config()
    cluster = tf_config.get("cluster")
    if isinstance(cluster, dict) and cluster:
        roles = ", ".join(
            f"{role} ({len(tasks)})" if isinstance(tasks, list | tuple | dict) else f"{role} ({tasks!r})"
            for role, tasks in cluster.items()
        )
    else:
        roles = "none"
    return f'TF_CONFIG["cluster"] has the roles: {roles}; TF_CONFIG["task"] is {tf_config.get("task")!r}.'
