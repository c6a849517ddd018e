"""WarmStartSettings: the checkpoint and the variables that initialise a new model."""

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

from fastsup.estimator.config.tensorflow_names import v1
from fastsup.estimator.model import trained_model

__all__ = ["VocabInfo", "WarmStartSettings", "checkpoint_of", "parse_warm_start_from", "warm_start"]

VocabInfo: Any = warm_starting_util.VocabInfo


class _Fields(NamedTuple):
    ckpt_to_initialize_from: str | bytes | os.PathLike[Any]
    vars_to_warm_start: Any
    var_name_to_vocab_info: Mapping[str, Any]
    var_name_to_prev_var_name: Mapping[str, Any]


class WarmStartSettings(_Fields):
    """The checkpoint and the variables that initialise a model without its own checkpoint.

    Args:
      ckpt_to_initialize_from: path of the checkpoint, or of a directory, whose newest checkpoint is used.
      vars_to_warm_start: a regular expression for names of trainable variables; a list of regular expressions for names
        of any variables; a list of variables; or None for those of `var_name_to_vocab_info` only. Defaults to all
        trainable variables.
      var_name_to_vocab_info: dictionary from a variable's name to the `VocabInfo` of its old and new vocabulary.
      var_name_to_prev_var_name: dictionary from a variable's name to its name in the checkpoint.

    Raises:
      ValueError: `ckpt_to_initialize_from` is missing.
      TypeError: `ckpt_to_initialize_from` isn't a path, or another argument isn't a dictionary.
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
    """Converts the argument `warm_start_from` of an Estimator to settings.

    Args:
      warm_start_from: path of a checkpoint, of a directory with checkpoints, or of a SavedModel; `WarmStartSettings`;
        or None.

    Returns:
      `WarmStartSettings`, or None.

    Raises:
      ValueError: the argument is of another type.
    """
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
    """The path of the checkpoint that initialises a model.

    Args:
      settings: the settings. Of a directory, the checkpoint is the one that an evaluation there would use.

    Raises:
      ValueError: the directory has no checkpoint.
      tf.errors.NotFoundError: there is no such checkpoint.
    """
    given = os.fsdecode(settings.ckpt_to_initialize_from)
    if not file_io.is_directory(given):
        if checkpoint_management.checkpoint_exists_internal(given):
            return given
        raise errors.NotFoundError(
            None,
            None,
            f"Unsuccessful TensorSliceReader constructor: Failed to find any matching files for {given}. It was given "
            "as warm_start_from: pass the path of a checkpoint, of a directory with checkpoints or of a SavedModel.",
        )
    found = trained_model.newest_checkpoint(given)
    if found is None:
        raise ValueError(
            f"There is no checkpoint for warm_start_from={given!r}. {trained_model.describe_directory(given)}"
        )
    return found


def warm_start(settings: WarmStartSettings) -> None:
    """Initialises the variables of the default graph with values of another model.

    Args:
      settings: the settings.

    Raises:
      ValueError: the directory has no checkpoint, or the shape of a variable differs.
      tf.errors.NotFoundError: there is no such checkpoint.
    """
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
        # TensorFlow would find another checkpoint in the directory, or none.
        settings = settings._replace(ckpt_to_initialize_from=path)
    v1.train.warm_start(*settings)
