"""The model directory of a RunConfig: from the argument, or from TF_CONFIG."""

from __future__ import annotations

import os
from typing import Any

from tensorflow.python.platform import tf_logging as logging

__all__ = ["choose_model_dir", "path_to_str"]


def path_to_str(model_dir: Any) -> str | None:
    """A model directory as a string; None for None.

    Raises:
      TypeError: the value isn't a path.
    """
    if model_dir is None:
        return None
    if not isinstance(model_dir, str | bytes | os.PathLike):
        raise TypeError(f"model_dir must be the path of a directory, or None for a temporary one; got {model_dir!r}.")
    return os.fsdecode(model_dir)


def choose_model_dir(tf_config: dict[str, Any], model_dir: Any) -> Any:
    """The model directory from the argument or from TF_CONFIG.

    Args:
      tf_config: TF_CONFIG as a dictionary.
      model_dir: the argument, or None.

    Returns:
      The path of the directory; None if there is none.

    Raises:
      ValueError: a path is empty, TF_CONFIG's isn't a string, or the two paths differ.
    """
    if model_dir == "":
        raise ValueError("model_dir should be non-empty.")
    in_environment = tf_config.get("model_dir")
    if in_environment == "":
        raise ValueError("model_dir in TF_CONFIG should be non-empty.")
    if in_environment:
        if not isinstance(in_environment, str):
            raise ValueError(f'TF_CONFIG["model_dir"] must be a string, got {in_environment!r}.')
        if model_dir and in_environment != model_dir:
            raise ValueError(
                "`model_dir` provided in RunConfig construct, if set, must have the same value as the model_dir in "
                f'TF_CONFIG. model_dir: {model_dir}\nTF_CONFIG["model_dir"]: {in_environment}.\n'
            )
        logging.info("Using model_dir in TF_CONFIG: %s", in_environment)
    return model_dir or in_environment
