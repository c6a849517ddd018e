"""The checkpoints in the model directory of an Estimator, and the checkpoint that initializes a new model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from tensorflow.python.checkpoint import checkpoint_management
from tensorflow.python.framework import errors, ops
from tensorflow.python.lib.io import file_io
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.saved_model import path_helpers
from tensorflow.python.training import warm_starting_util

from fastsup.checkpoint.directory import is_in, is_unfinished, list_checkpoints
from fastsup.common.file_system import exists
from fastsup.estimator.config.tensorflow_names import tf, v1

__all__ = [
    "VocabInfo",
    "WarmStartSettings",
    "checkpoint_of",
    "describe_directory",
    "global_step_of",
    "newest_checkpoint",
    "parse_checkpoint_path",
    "parse_warm_start_from",
    "require_checkpoint",
    "warm_start",
    "warn_of_state_file",
]

_LISTED = 20


def newest_checkpoint(model_dir: Any) -> str | None:
    """Returns the checkpoint to evaluate: the one in the state file, or else the newest in the directory."""
    try:
        path = tf.train.latest_checkpoint(model_dir)
    except ValueError:  # The state file is empty.
        path = None
    if path and is_in(path, os.fspath(model_dir)):
        return str(path)
    # The state file is missing or names a checkpoint of another directory. Training would resume from the newest
    # checkpoint in this directory, so an evaluation also uses that one.
    for candidate in list_checkpoints(model_dir).paths:
        if exists(candidate + ".index") and not is_unfinished(candidate):
            return candidate
    return str(path) if path else None


def warn_of_state_file(model_dir: Any, path: str | None) -> None:
    """Warns about a state file that is missing or names a checkpoint other than the one in use."""
    if path is None:
        return
    listing = list_checkpoints(model_dir)
    remarks = listing.remarks
    if listing.named and os.path.normpath(listing.paths[0]) != os.path.normpath(path):
        remarks = [f"The state file of {model_dir} names {listing.paths[0]}, which isn't there; {path} is used"]
    for remark in remarks:
        logging.warning("%s. See `python -m fastsup docs recovery`.", remark)


def global_step_of(model_dir: Any) -> int:
    """Returns the global step of the newest checkpoint, or 0 if there is none or it can't be read."""
    try:
        path = newest_checkpoint(model_dir)
        if path is None:
            return 0
        return int(v1.train.NewCheckpointReader(path).get_tensor(ops.GraphKeys.GLOBAL_STEP))
    except (errors.OpError, RuntimeError, IndexError, ValueError, TypeError):
        return 0


def describe_directory(model_dir: Any) -> str:
    """Lists the files of a directory in one sentence."""
    path = os.fspath(model_dir)
    try:
        if not file_io.file_exists(path):
            return f"There is no directory {path}."
        if not file_io.is_directory(path):
            return f"{path} is a file, not a directory."
        names = sorted(file_io.list_directory_v2(path))
    except errors.OpError as error:
        return f"{path} can't be read: {error.message}."
    if not names:
        return f"{path} is empty."
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{path} holds: {', '.join(names[:_LISTED])}{more}."


def parse_checkpoint_path(checkpoint_path: Any) -> str | None:
    """Returns the argument `checkpoint_path` as a string, or None if it isn't given."""
    if not checkpoint_path:
        return None
    if not isinstance(checkpoint_path, str | bytes | os.PathLike):
        raise TypeError(
            f"checkpoint_path must be the path of a checkpoint, or None for the newest; got {checkpoint_path!r}."
        )
    return os.fsdecode(checkpoint_path)


def require_checkpoint(model_dir: Any) -> str:
    """Returns the path of the newest checkpoint in a directory. If there is none, the error lists the files."""
    path = newest_checkpoint(model_dir)
    if path is None:
        raise ValueError(
            f"Could not find trained model in model_dir: {model_dir}. {describe_directory(model_dir)} Train the model "
            "first, or pass the directory of a trained model."
        )
    return path


VocabInfo: Any = warm_starting_util.VocabInfo


class _Fields(NamedTuple):
    ckpt_to_initialize_from: str | bytes | os.PathLike[Any]
    vars_to_warm_start: Any
    var_name_to_vocab_info: Mapping[str, Any]
    var_name_to_prev_var_name: Mapping[str, Any]


class WarmStartSettings(_Fields):
    """The checkpoint and variables for initializing a model that has no checkpoint yet.

    Args:
      ckpt_to_initialize_from: path of a checkpoint, or of a directory, whose newest checkpoint is used.
      vars_to_warm_start: a regular expression for names of trainable variables; a list of regular expressions for names
        of any variables; a list of variables; or None to use only the variables of `var_name_to_vocab_info`. Defaults
        to all trainable variables.
      var_name_to_vocab_info: dictionary from a variable's name to the `VocabInfo` of its old and new vocabulary.
      var_name_to_prev_var_name: dictionary from a variable's name to its name in the checkpoint.

    Raises:
      ValueError: If `ckpt_to_initialize_from` is missing.
      TypeError: If `ckpt_to_initialize_from` isn't a path, or another argument isn't a dictionary.
    """

    __slots__ = ()

    def __new__(
        cls,
        ckpt_to_initialize_from: Any,
        vars_to_warm_start: Any = ".*",
        var_name_to_vocab_info: Any = None,
        var_name_to_prev_var_name: Any = None,
    ) -> Any:
        if not ckpt_to_initialize_from:
            raise ValueError("`ckpt_to_initialize_from` MUST be set in WarmStartSettings")
        if not isinstance(ckpt_to_initialize_from, str | bytes | os.PathLike):
            raise TypeError(
                f"ckpt_to_initialize_from must be the path of a checkpoint, got {ckpt_to_initialize_from!r}."
            )
        dictionaries = {
            "var_name_to_vocab_info": var_name_to_vocab_info,
            "var_name_to_prev_var_name": var_name_to_prev_var_name,
        }
        for name, given in dictionaries.items():
            if given and not isinstance(given, Mapping):
                raise TypeError(f"{name} must be a dictionary from names of variables, got {given!r}.")
        return super().__new__(
            cls,
            ckpt_to_initialize_from,
            vars_to_warm_start,
            var_name_to_vocab_info or {},
            var_name_to_prev_var_name or {},
        )


def parse_warm_start_from(warm_start_from: Any) -> Any:
    """Converts the argument `warm_start_from` of an Estimator to settings."""
    if warm_start_from is None or isinstance(warm_start_from, WarmStartSettings):
        return warm_start_from
    if hasattr(warm_start_from, "__fspath__"):
        warm_start_from = os.fspath(warm_start_from)
    if not isinstance(warm_start_from, str | bytes):
        raise ValueError(
            f"warm_start_from must be a string or a WarmStartSettings, instead got {type(warm_start_from)}"
        )
    if file_io.file_exists(os.path.join(path_helpers.get_variables_dir(warm_start_from), "variables.index")):
        logging.info("Warm-starting from a SavedModel")
        return WarmStartSettings(path_helpers.get_variables_path(warm_start_from))
    return WarmStartSettings(warm_start_from)


def checkpoint_of(settings: WarmStartSettings) -> str:
    """Returns the path of the checkpoint that initializes a model. In a directory, this is the one to evaluate."""
    given = os.fsdecode(settings.ckpt_to_initialize_from)
    if not file_io.is_directory(given):
        if checkpoint_management.checkpoint_exists_internal(given):
            return given
        raise errors.NotFoundError(
            None,
            None,
            f"Unsuccessful TensorSliceReader constructor: Failed to find any matching files for {given}. It was "
            "passed as warm_start_from: pass the path of a checkpoint, of a directory with checkpoints or of a "
            "SavedModel.",
        )
    found = newest_checkpoint(given)
    if found is None:
        raise ValueError(f"There is no checkpoint for warm_start_from={given!r}. {describe_directory(given)}")
    return found


def warm_start(settings: WarmStartSettings) -> None:
    """Initializes the variables of the default graph with values of another model."""
    logging.info("Warm-starting with WarmStartSettings: %s", str(settings))
    wanted = settings.vars_to_warm_start
    if isinstance(wanted, str) and not ops.get_collection(ops.GraphKeys.TRAINABLE_VARIABLES, scope=wanted):
        logging.warning(
            "Nothing is warm-started: vars_to_warm_start=%r matches no trainable variable. See "
            "`python -m fastsup docs dropin#estimator`.",
            wanted,
        )
    path = checkpoint_of(settings)
    if path != checkpoint_management.latest_checkpoint(os.fsdecode(settings.ckpt_to_initialize_from)):
        # TensorFlow would use another checkpoint of the directory, or none.
        settings = settings._replace(ckpt_to_initialize_from=path)
    v1.train.warm_start(*settings)
